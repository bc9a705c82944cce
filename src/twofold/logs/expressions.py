"""Read column expressions such as ``label = prediction`` and turn them into narwhals expressions.

The grammar is a small part of SQL: columns, numbers, texts, comparisons, arithmetic, ``and``, ``or``, ``not``, ``in``,
``is null`` and the functions of ``FUNCTIONS``. A text is never handed to an engine as SQL, so it can do no more than
compute a column.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from twofold.errors import InvalidInput, UnknownName

if TYPE_CHECKING:
    import narwhals as nw

LONGEST = 10_000  # characters of an expression
DEEPEST = 100  # parentheses, minus signs and negations inside each other

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<word>[^\W\d]\w*)
      | "(?P<quoted>(?:[^"]|"")*)"
      | '(?P<text>(?:[^']|'')*)'
      | (?P<sign><>|!=|<=|>=|==|[-+*/=<>(),])
    )""",
    re.VERBOSE,
)
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_KEYWORDS = ("and", "or", "not", "in", "is", "null", "true", "false")


def _as_timestamp(column: Any) -> Any:
    import narwhals as nw

    return column.cast(nw.Datetime())


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "abs": lambda column: column.abs(),
    "exp": lambda column: column.exp(),
    "log": lambda column: column.log(),
    "lower": lambda column: column.str.to_lowercase(),
    "date": lambda column: column.dt.date(),
    "month": lambda column: column.dt.truncate("1mo").dt.date(),
    "hour": lambda column: column.dt.truncate("1h"),
    "timestamp": _as_timestamp,
}
"""Functions of one column that an expression may call."""


def parse_expression(text: str, columns: Mapping[str, str], name: str) -> nw.Expr:
    """Turn a text into a narwhals expression.

    Parameters
    ----------
    text : str
        A column name, or an expression. A text that is the name of a column means that column, whatever it holds.
        Inside expressions, names with other characters than letters, digits and underscores stand in double quotes.
    columns : mapping of str to str
        Columns of the table, and what each is called in the frame that the expression is for.
    name : str
        What the expression is for, as errors say it.

    Returns
    -------
    narwhals.Expr
        The expression.

    Raises
    ------
    UnknownName
        If the text names a column or function that does not exist.
    InvalidInput
        If the text is not an expression.

    Examples
    --------
    >>> import narwhals as nw, pyarrow as pa
    >>> frame = nw.from_native(pa.table({"label": [0, 1], "prediction": [0, 0]}))
    >>> same = parse_expression("label = prediction", {"label": "label", "prediction": "prediction"}, "correct")
    >>> frame.select(same.alias("correct"))["correct"].to_list()
    [True, False]
    """
    if text in columns:
        return _named_column(columns[text])
    if len(text) > LONGEST:
        raise InvalidInput(f"{name} must be an expression of at most {LONGEST} characters, got {len(text)}")
    return _Parser(text, columns, name).parse()


def _named_column(name: str) -> nw.Expr:
    """Return the column of a name; some names mean several columns to engines."""
    import narwhals as nw

    if name in ("", "*") or (name.startswith("^") and name.endswith("$")):
        raise InvalidInput(f"a column is called {name!r}, which engines take for a pattern; rename it first")
    return nw.col(name)


class _Parser:
    """Parse one expression by recursive descent, a method per level of precedence."""

    def __init__(self, text: str, columns: Mapping[str, str], name: str) -> None:
        self.text = text
        self.columns = columns
        self.name = name
        self.tokens = self._split(text)
        self.place = 0
        self.depth = 0

    def parse(self) -> nw.Expr:
        import narwhals as nw

        if not self.tokens:
            raise self._error("it is empty")
        result = self._either()
        if self.place < len(self.tokens):
            raise self._error(f"{self._shown()} was not expected")
        if not isinstance(result, nw.Expr):
            return nw.lit(result)
        return result

    def _split(self, text: str) -> list[tuple[str, str]]:
        tokens = []
        place, end = 0, len(text.rstrip())
        while place < end:
            match = _TOKEN.match(text, place)
            if match is None:
                raise self._error(f"{text[place:].strip()[:10]!r} cannot be read")
            kind = str(match.lastgroup)
            tokens.append((kind, match[kind]))
            place = match.end()
        return tokens

    def _error(self, problem: str) -> InvalidInput:
        return InvalidInput(
            f'{self.name} must be a column or an expression such as "label = prediction", got {self.text[:200]!r}: '
            f"{problem}; put column names with special characters in double quotes, and texts in single quotes"
        )

    def _shown(self) -> str:
        if self.place == len(self.tokens):
            return "its end"
        return repr(self.tokens[self.place][1])

    def _take_sign(self, *signs: str) -> str | None:
        """Read on if the next token is one of these signs."""
        if self.place < len(self.tokens):
            kind, value = self.tokens[self.place]
            if kind == "sign" and value in signs:
                self.place += 1
                return value
        return None

    def _take_word(self, word: str) -> bool:
        """Read on if the next token is this keyword."""
        if self.place < len(self.tokens):
            kind, value = self.tokens[self.place]
            if kind == "word" and value.lower() == word:
                self.place += 1
                return True
        return False

    def _require(self, sign: str) -> None:
        if self._take_sign(sign) is None:
            raise self._error(f"{sign!r} was expected instead of {self._shown()}")

    def _either(self) -> Any:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self._error("it is nested too deeply")
        left = self._both()
        while self._take_word("or"):
            left = left | self._both()
        self.depth -= 1
        return left

    def _both(self) -> Any:
        left = self._negated()
        while self._take_word("and"):
            left = left & self._negated()
        return left

    def _negated(self) -> Any:
        times = 0
        while self._take_word("not"):
            times += 1
        result = self._comparison()
        if times % 2:
            return ~result
        return result

    def _comparison(self) -> Any:
        left = self._sum()
        sign = self._take_sign(*_COMPARISONS)
        if sign is not None:
            return _COMPARISONS[sign](left, self._sum())
        if self._take_word("is"):
            negated = self._take_word("not")
            if not self._take_word("null"):
                raise self._error(f"'null' was expected instead of {self._shown()}")
            is_null = self._as_column(left).is_null()
            return ~is_null if negated else is_null
        if self._take_word("in"):
            return self._as_column(left).is_in(self._values())
        return left

    def _values(self) -> list[Any]:
        """Read the values of ``in (...)``."""
        self._require("(")
        values = [self._value()]
        while self._take_sign(","):
            values.append(self._value())
        self._require(")")
        return values

    def _value(self) -> Any:
        import narwhals as nw

        value = self._sum()
        if isinstance(value, nw.Expr):
            raise self._error("'in' takes numbers and texts")
        return value

    def _sum(self) -> Any:
        left = self._product()
        while sign := self._take_sign("+", "-"):
            left = _ARITHMETIC[sign](left, self._product())
        return left

    def _product(self) -> Any:
        left = self._signed()
        while sign := self._take_sign("*", "/"):
            left = _ARITHMETIC[sign](left, self._signed())
        return left

    def _signed(self) -> Any:
        negative = False
        while self._take_sign("-"):
            negative = not negative
        value = self._primary()
        if negative:
            return 0 - value
        return value

    def _primary(self) -> Any:
        if self._take_sign("("):
            inside = self._either()
            self._require(")")
            return inside
        if self.place == len(self.tokens):
            raise self._error("it ends too early")
        kind, value = self.tokens[self.place]
        if kind == "sign":
            raise self._error(f"{value!r} was not expected")
        self.place += 1
        if kind == "number":
            return float(value) if set(value) & set(".eE") else int(value)
        if kind == "text":
            return value.replace("''", "'")
        if kind == "quoted":
            return self._column(value.replace('""', '"'))
        if self._take_sign("("):
            return self._call(value)
        if value.lower() in ("true", "false") and value not in self.columns:
            return value.lower() == "true"
        if value.lower() in _KEYWORDS and value not in self.columns:
            raise self._error(f"{value!r} was not expected")
        return self._column(value)

    def _call(self, function: str) -> Any:
        if function.lower() not in FUNCTIONS:
            raise UnknownName.of("function of expressions", function, FUNCTIONS)
        inside = self._as_column(self._either())
        self._require(")")
        return FUNCTIONS[function.lower()](inside)

    def _column(self, column: str) -> nw.Expr:
        if column not in self.columns:
            raise UnknownName.of("column", column, self.columns)
        return _named_column(self.columns[column])

    def _as_column(self, value: Any) -> nw.Expr:
        import narwhals as nw

        if isinstance(value, nw.Expr):
            return value
        raise self._error(f"{value!r} is not a column")


def split_names(text: str) -> list[str]:
    """Split a text at the commas outside parentheses and quotes.

    Parameters
    ----------
    text : str
        Names and expressions with commas between them.

    Returns
    -------
    list of str
        The parts, without blanks around them.

    Examples
    --------
    >>> split_names('model, date(time), "a,b"')
    ['model', 'date(time)', '"a,b"']
    """
    parts = [""]
    depth, quote = 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign in "()":
            depth += 1 if sign == "(" else -1
        if sign == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def as_expressions(values: str | Iterable[Any]) -> tuple[Any, ...]:
    """Return columns or expressions as a tuple; a text is one of them.

    Parameters
    ----------
    values : str, narwhals.Expr or iterable of these
        Columns or expressions.

    Returns
    -------
    tuple
        The same, one by one.

    Examples
    --------
    >>> as_expressions("model")
    ('model',)
    """
    import narwhals as nw

    if isinstance(values, str | nw.Expr):
        return (values,)
    return tuple(values)
