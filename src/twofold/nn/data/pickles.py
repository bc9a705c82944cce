"""Read pickles as plain data, with our own interpreter: containers, numbers, texts and NumPy arrays of numbers.

CIFAR is published as pickles, and Python's unpickler runs whatever a pickle asks for. Here nothing is imported or
called: a pickle may only name what NumPy itself writes for an array, the state of arrays and dtypes is checked before
it is set, and nesting and memory are bounded by the size of the file.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from twofold.errors import InvalidInput

AnyArray = npt.NDArray[Any]

DEPTH = 16  # deepest nesting of containers; a CIFAR batch has 3
SPARE = 1 << 20  # bytes that may be built beyond four times the size of the pickle
NUMBERS = "biuf"  # kinds of admitted dtypes
BYTE_ORDERS = ("<", ">", "=", "|")
PLAIN_DTYPE = (None, None, None, -1, -1, 0)  # no subarray, names, fields, own size, alignment or flags
MARK = object()


class _Refused(Exception):
    """A pickle asks for something that plain data never need."""


@dataclass(eq=False)
class _DType:
    """Hold the dtype that a pickle describes."""

    code: str
    order: str = "="

    def made(self) -> np.dtype[Any]:
        return np.dtype(self.code).newbyteorder(self.order)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Global:
    """Stand for an admitted global, which is never imported."""

    name: str


ADMITTED = {
    **dict.fromkeys(("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct"), "_reconstruct"),
    **dict.fromkeys(("numpy.core.numeric._frombuffer", "numpy._core.numeric._frombuffer"), "_frombuffer"),
    "numpy.ndarray": "ndarray",
    "numpy.dtype": "dtype",
    "_codecs.encode": "encode",
    **dict.fromkeys(("builtins.set", "__builtin__.set"), "set"),
    **dict.fromkeys(("builtins.bytes", "__builtin__.bytes"), "bytes"),
    **dict.fromkeys(("builtins.frozenset", "__builtin__.frozenset"), "frozenset"),
}


def plain_pickle(data: bytes, name: str) -> Any:
    """Read a pickle of built-in containers, numbers, texts and NumPy arrays of numbers.

    Parameters
    ----------
    data : bytes
        The pickle.
    name : str
        What the pickle is called in errors.

    Returns
    -------
    object
        Dictionaries, lists, tuples and sets of numbers, texts, bytes and arrays. Texts of Python 2 are bytes.

    Raises
    ------
    InvalidInput
        If the pickle is damaged, or asks for anything else.

    Examples
    --------
    >>> import pickle
    >>> plain_pickle(pickle.dumps({"labels": [1, 2]}), "batch")
    {'labels': [1, 2]}
    """
    try:
        return _Machine(len(data)).run(data)
    except _Refused as error:
        raise InvalidInput(f"{name}: this pickle {error}") from error
    except Exception as error:  # damaged pickles raise almost anything; their objects are not shown
        raise InvalidInput(f"{name} is a damaged or truncated pickle ({type(error).__name__})") from error


@dataclass(eq=False)
class _Machine:
    """Run the stack machine that a pickle is a program for."""

    size: int  # bytes of the pickle
    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)
    depths: dict[int, int] = field(default_factory=dict)  # of containers, by id
    kept: list[Any] = field(default_factory=list)  # containers stay alive, so that no id is used twice
    spent: int = 0  # bytes and items passed to the makers of objects so far

    def run(self, data: bytes) -> Any:
        for op, argument, _ in pickletools.genops(data):
            if op.name == "STOP":
                result = self.stack.pop()
                if self.stack:
                    raise ValueError("something is left on the stack")
                return result
            self._step(op.name, argument)
        raise ValueError("there is no end")

    def _step(self, op: str, argument: Any) -> None:
        if op in IGNORED:
            return
        if op in CONSTANTS:
            self.stack.append(CONSTANTS[op])
        elif op in NUMBERS_AND_TEXTS:
            self.stack.append(argument)
        elif op in BYTE_TEXTS:  # texts of Python 2, which pickletools decodes
            self.stack.append(argument.encode("latin-1"))
        elif op in HANDLERS:
            HANDLERS[op](self, argument)
        else:
            raise _Refused(f"uses {op}, which is refused; only containers, numbers, texts and arrays are read")

    # Containers

    def marked(self) -> list[Any]:
        """Take all items down to the last mark off the stack."""
        place = len(self.stack) - 1
        while self.stack[place] is not MARK:
            place -= 1
            if place < 0:
                raise ValueError("there is no mark")
        items = self.stack[place + 1 :]
        del self.stack[place:]
        return items

    def push(self, container: Any, items: Sequence[Any] = ()) -> None:
        """Put a container with these items on the stack."""
        self.kept.append(container)
        self.depths[id(container)] = 1
        self._nest(container, items)
        self.stack.append(container)

    def _nest(self, container: Any, items: Sequence[Any]) -> None:
        deepest = max((self.depths.get(id(item), 0) for item in items), default=0)
        depth = max(self.depths[id(container)], deepest + 1)
        if depth > DEPTH:
            raise _Refused(f"nests containers more than {DEPTH} deep, which is refused")
        self.depths[id(container)] = depth

    def extend(self, items: list[Any]) -> None:
        """Append items to the list on top of the stack."""
        target = self._top(list)
        self._nest(target, items)
        target.extend(items)

    def update(self, items: list[Any]) -> None:
        """Set keys and values of the dictionary on top of the stack."""
        target = self._top(dict)
        self._nest(target, items)
        keys, values = items[::2], items[1::2]
        target.update(zip(_hashable(keys), values, strict=True))

    def add(self, items: list[Any]) -> None:
        """Add items to the set on top of the stack."""
        self._top(set).update(_hashable(items))

    def _top(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            raise ValueError(f"the top of the stack is no {kind.__name__}")
        return self.stack[-1]

    def _spend(self, amount: int) -> None:
        """Count bytes or items that are read once more, so that a small pickle cannot take all time or memory."""
        self.spent += amount
        if self.spent > 4 * self.size + SPARE:
            raise _Refused("builds far more than it holds, which is refused")

    # Arrays

    def find(self, module: Any, name: Any) -> None:
        """Push a global by name."""
        if type(module) is not str or type(name) is not str:
            raise ValueError("the name of a global is no text")
        whole = f"{module}.{name}"
        if whole not in ADMITTED:
            raise _Refused(
                f"asks for the global {whole[:100]!r}, which is refused; only NumPy arrays and built-in containers "
                "are read, since a pickle can run any code"
            )
        self.stack.append(_Global(ADMITTED[whole]))

    def reduce(self, _: Any) -> None:
        """Make what an admitted global makes of its arguments."""
        arguments, maker = self.stack.pop(), self.stack.pop()
        if type(maker) is not _Global or maker.name not in MAKERS or type(arguments) is not tuple:
            what = maker.name if type(maker) is _Global else "something"
            raise _Refused(f"calls {what}, which is refused; only the makers of arrays and sets are called")
        for argument in arguments:
            if type(argument) in (str, bytes, bytearray, list, tuple):
                self._spend(len(argument))
        made = MAKERS[maker.name](*arguments)
        if isinstance(made, set | frozenset):
            self.push(made)
        else:
            self.stack.append(made)

    def build(self, _: Any) -> None:
        """Set the state of an array or dtype."""
        state, target = self.stack.pop(), self.stack[-1]
        if type(target) is _DType:
            target.order = _byte_order(state)
        elif type(target) is np.ndarray:
            checked = _array_state(state)
            self._spend(len(checked[-1]))
            target.__setstate__(checked)  # type: ignore[arg-type]  # the stubs want NumPy's own bool
        else:
            raise _Refused("sets the state of something other than an array or dtype, which is refused")


def _hashable(items: Sequence[Any]) -> Sequence[Any]:
    """Raise unless the items can be hashed quickly: nested tuples can take forever."""
    for item in items:
        if type(item) not in (str, bytes, int, float, bool, type(None)):
            raise _Refused(f"has a key of type {type(item).__name__}, which is refused; keys are texts and numbers")
    return items


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    """Encode as Python 3 writes bytes in old protocols; no other codec is offered."""
    if encoding not in ("latin1", "latin-1"):
        raise _Refused("asks for a codec other than latin1, which is refused")
    if type(text) is not str:
        raise ValueError("no text to encode")
    return text.encode("latin-1")


def _dtype(code: Any, align: Any = False, copy: Any = True) -> _DType:
    text = code.decode("latin-1") if type(code) is bytes else code
    if type(text) is not str or len(text) > 8 or np.dtype(text).kind not in NUMBERS:
        raise _Refused("asks for an array of something other than numbers, which is refused")
    return _DType(text)


def _reconstruct(kind: Any, shape: Any, code: Any) -> AnyArray:
    """Make an empty array, whose state the pickle sets next."""
    if kind != _Global("ndarray"):
        raise _Refused("asks for an array of another type than numpy.ndarray, which is refused")
    return np.empty(0, dtype=np.int8)


def _frombuffer(buffer: Any, dtype: Any, shape: Any, order: Any) -> AnyArray:
    """Make an array over bytes, as NumPy writes it in protocol 5."""
    if type(buffer) not in (bytes, bytearray) or type(dtype) is not _DType or order not in ("C", "F"):
        raise ValueError("no buffer with a dtype and an order")
    return np.frombuffer(buffer, dtype=dtype.made()).reshape(_shape(shape), order=order)


def _collect(kind: Callable[..., Any]) -> Callable[..., Any]:
    def make(items: Any = ()) -> Any:
        if type(items) not in (list, tuple):
            raise ValueError("no list of items")
        return kind(_hashable(items))

    return make


def _byte_order(state: Any) -> str:
    """Return the byte order in the state of a dtype of plain numbers."""
    if type(state) is not tuple or len(state) not in (8, 9) or state[0] not in (3, 4):
        raise _Refused("sets an unknown state of a dtype, which is refused")
    order = state[1].decode("latin-1") if type(state[1]) is bytes else state[1]
    if type(order) is not str or order not in BYTE_ORDERS:
        raise _Refused("sets an unknown byte order, which is refused")
    for value, plain in zip(state[2:8], PLAIN_DTYPE, strict=True):
        if type(value) is not type(plain) or value != plain:
            raise _Refused("sets the state of a dtype that is not of plain numbers, which is refused")
    if len(state) == 9 and state[8] is not None:
        raise _Refused("sets metadata of a dtype, which is refused")
    return order


def _array_state(state: Any) -> tuple[int, tuple[int, ...], np.dtype[Any], bool, bytes]:
    """Check and return the state of an array: version, shape, dtype, order and bytes."""
    if type(state) is not tuple or len(state) != 5 or state[0] != 1:
        raise _Refused("sets an unknown state of an array, which is refused")
    _, shape, dtype, fortran, content = state
    if type(dtype) is not _DType or type(content) is not bytes:
        raise _Refused("sets the state of an array of something other than numbers, which is refused")
    made, sizes = dtype.made(), _shape(shape)
    wanted = made.itemsize
    for size in sizes:
        wanted *= size
    if wanted != len(content):
        raise ValueError("shape and bytes of an array do not fit")
    return 1, sizes, made, bool(fortran is True or fortran == 1), content


def _shape(shape: Any) -> tuple[int, ...]:
    if type(shape) is not tuple or len(shape) > DEPTH:
        raise ValueError("no shape")
    for size in shape:
        if type(size) is not int or size < 0:
            raise ValueError("a size is no whole number")
    return shape


def _memorise(machine: _Machine, place: int | None) -> None:
    machine.memo[len(machine.memo) if place is None else place] = machine.stack[-1]


def _pop(machine: _Machine, _: Any) -> None:
    machine.stack.pop()


def _pop_marked(machine: _Machine, _: Any) -> None:
    machine.marked()


def _pop_several(count: int) -> Callable[[_Machine, Any], None]:
    def handle(machine: _Machine, _: Any) -> None:
        if len(machine.stack) < count:
            raise ValueError("the stack is too short")
        items = machine.stack[len(machine.stack) - count :]
        del machine.stack[len(machine.stack) - count :]
        machine.push(tuple(items), items)

    return handle


def _set_items(machine: _Machine, items: list[Any]) -> None:
    machine.push({})
    machine.update(items)


def _append(machine: _Machine, _: Any) -> None:
    machine.extend([machine.stack.pop()])


def _set_item(machine: _Machine, _: Any) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.update([key, value])


def _push_marked(kind: Callable[[list[Any]], Any]) -> Callable[[_Machine, Any], None]:
    def handle(machine: _Machine, _: Any) -> None:
        items = machine.marked()
        machine.push(kind(items), items)

    return handle


def _stack_global(machine: _Machine, _: Any) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    machine.find(module, name)


MAKERS: dict[str, Callable[..., Any]] = {
    "_reconstruct": _reconstruct,
    "_frombuffer": _frombuffer,
    "dtype": _dtype,
    "encode": _encode,
    "bytes": lambda: b"",  # how old protocols write no bytes at all; with arguments it is an error
    "set": _collect(set),
    "frozenset": _collect(frozenset),
}
IGNORED = ("PROTO", "FRAME")
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "MARK": MARK}
NUMBERS_AND_TEXTS = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    )
)
BYTE_TEXTS = frozenset(("STRING", "BINSTRING", "SHORT_BINSTRING"))
HANDLERS: dict[str, Callable[[_Machine, Any], None]] = {
    "POP": _pop,
    "POP_MARK": _pop_marked,
    "DUP": lambda machine, _: machine.stack.append(machine.stack[-1]),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_SET": lambda machine, _: machine.push(set()),
    "LIST": _push_marked(list),
    "TUPLE": _push_marked(tuple),
    "FROZENSET": _push_marked(lambda items: frozenset(_hashable(items))),
    "TUPLE1": _pop_several(1),
    "TUPLE2": _pop_several(2),
    "TUPLE3": _pop_several(3),
    "DICT": lambda machine, _: _set_items(machine, machine.marked()),
    "APPEND": _append,
    "APPENDS": lambda machine, _: machine.extend(machine.marked()),
    "SETITEM": _set_item,
    "SETITEMS": lambda machine, _: machine.update(machine.marked()),
    "ADDITEMS": lambda machine, _: machine.add(machine.marked()),
    "PUT": _memorise,
    "BINPUT": _memorise,
    "LONG_BINPUT": _memorise,
    "MEMOIZE": lambda machine, _: _memorise(machine, None),
    "GET": lambda machine, place: machine.stack.append(machine.memo[place]),
    "BINGET": lambda machine, place: machine.stack.append(machine.memo[place]),
    "LONG_BINGET": lambda machine, place: machine.stack.append(machine.memo[place]),
    "GLOBAL": lambda machine, whole: machine.find(*whole.split(" ", 1)),
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _Machine.reduce,
    "BUILD": _Machine.build,
}
