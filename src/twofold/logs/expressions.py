"""Read column expressions such as ``label = prediction`` and turn them into narwhals expressions.

The grammar is a small part of SQL: columns, numbers, texts, comparisons, arithmetic, ``and``, ``or``, ``not``, ``in``,
``is null`` and the functions of ``FUNCTIONS``. A text is never handed to an engine as SQL, so it can do no more than
compute a column.

Comparisons with NaN follow the rules of arrays on every engine: NaN differs from every number and from itself, and is
neither larger nor smaller. DuckDB, Polars and Spark left alone take it as equal to itself and larger than every number.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
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
_FLOAT_FUNCTIONS = ("exp", "log")  # their results are floats whatever they get


def parse_expression(text: str, columns: Mapping[str, str], name: str, *, floats: Collection[str] = ()) -> nw.Expr:
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
    floats : collection of str, default=()
        Columns of the frame that hold floats, which may be NaN.

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
    return _Parser(text, columns, name, floats).parse()


def _named_column(name: str) -> nw.Expr:
    """Return the column of a name; some names mean several columns to engines."""
    import narwhals as nw

    if name in ("", "*") or (name.startswith("^") and name.endswith("$")):
        raise InvalidInput(f"a column is called {name!r}, which engines take for a pattern; rename it first")
    return nw.col(name)


@dataclass(frozen=True)
class _Operand:
    """Hold a part of an expression: a narwhals expression or a plain value, and whether it may be NaN."""

    value: Any
    may_be_nan: bool = False

    @property
    def is_column(self) -> bool:
        """Whether the value differs by row."""
        import narwhals as nw

        return isinstance(self.value, nw.Expr)


def _compare(sign: str, left: _Operand, right: _Operand) -> _Operand:
    """Compare two operands; NaN is unordered."""
    result = _COMPARISONS[sign](left.value, right.value)
    for operand in (left, right):
        if not operand.may_be_nan:
            continue
        if sign in ("!=", "<>"):
            result = result | operand.value.is_nan()
        else:
            result = result & ~operand.value.is_nan()
    return _Operand(result)


def _calculate(sign: str, left: _Operand, right: _Operand) -> _Operand:
    """Add, subtract, multiply or divide two operands."""
    value = _ARITHMETIC[sign](left.value, right.value)
    is_column = left.is_column or right.is_column
    may_be_nan = left.may_be_nan or right.may_be_nan or (is_column and sign == "/")
    return _Operand(value, may_be_nan)


class _Parser:
    """Parse one expression by recursive descent, a method per level of precedence."""

    def __init__(self, text: str, columns: Mapping[str, str], name: str, floats: Collection[str]) -> None:
        self.text = text
        self.columns = columns
        self.name = name
        self.floats = floats
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
        expression: nw.Expr = result.value if result.is_column else nw.lit(result.value)
        return expression

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

    def _either(self) -> _Operand:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self._error("it is nested too deeply")
        left = self._both()
        while self._take_word("or"):
            left = _Operand(left.value | self._both().value)
        self.depth -= 1
        return left

    def _both(self) -> _Operand:
        left = self._negated()
        while self._take_word("and"):
            left = _Operand(left.value & self._negated().value)
        return left

    def _negated(self) -> _Operand:
        times = 0
        while self._take_word("not"):
            times += 1
        result = self._comparison()
        if times % 2:
            return _Operand(~result.value)
        return result

    def _comparison(self) -> _Operand:
        left = self._sum()
        sign = self._take_sign(*_COMPARISONS)
        if sign is not None:
            return _compare(sign, left, self._sum())
        if self._take_word("is"):
            negated = self._take_word("not")
            if not self._take_word("null"):
                raise self._error(f"'null' was expected instead of {self._shown()}")
            is_null = self._as_column(left).is_null()
            return _Operand(~is_null if negated else is_null)
        if self._take_word("in"):
            return _Operand(self._as_column(left).is_in(self._values()))
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
        operand = self._sum()
        if operand.is_column:
            raise self._error("'in' takes numbers and texts")
        return operand.value

    def _sum(self) -> _Operand:
        left = self._product()
        while sign := self._take_sign("+", "-"):
            left = _calculate(sign, left, self._product())
        return left

    def _product(self) -> _Operand:
        left = self._signed()
        while sign := self._take_sign("*", "/"):
            left = _calculate(sign, left, self._signed())
        return left

    def _signed(self) -> _Operand:
        negative = False
        while self._take_sign("-"):
            negative = not negative
        operand = self._primary()
        if negative:
            return _calculate("-", _Operand(0), operand)
        return operand

    def _primary(self) -> _Operand:
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
            return _Operand(float(value) if set(value) & set(".eE") else int(value))
        if kind == "text":
            return _Operand(value.replace("''", "'"))
        if kind == "quoted":
            return self._column(value.replace('""', '"'))
        if self._take_sign("("):
            return self._call(value)
        if value.lower() in ("true", "false") and value not in self.columns:
            return _Operand(value.lower() == "true")
        if value.lower() in _KEYWORDS and value not in self.columns:
            raise self._error(f"{value!r} was not expected")
        return self._column(value)

    def _call(self, text: str) -> _Operand:
        function = text.lower()
        if function not in FUNCTIONS:
            raise UnknownName.of("function of expressions", text, FUNCTIONS)
        inside = self._either()
        column = self._as_column(inside)
        self._require(")")
        may_be_nan = function in _FLOAT_FUNCTIONS or (function == "abs" and inside.may_be_nan)
        return _Operand(FUNCTIONS[function](column), may_be_nan)

    def _column(self, column: str) -> _Operand:
        if column not in self.columns:
            raise UnknownName.of("column", column, self.columns)
        name = self.columns[column]
        return _Operand(_named_column(name), name in self.floats)

    def _as_column(self, operand: _Operand) -> nw.Expr:
        if not operand.is_column:
            raise self._error(f"{operand.value!r} is not a column")
        column: nw.Expr = operand.value
        return column


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
