"""Read pickles as plain data, with our own interpreter: containers, numbers, texts and NumPy arrays of numbers.

CIFAR is published as pickles, and Python's unpickler runs whatever a pickle asks for. Here nothing is imported or
called: a pickle may only name what NumPy itself writes for an array, the state of arrays and dtypes is checked before
it is set, and nesting and memory are bounded by the size of the file.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import numpy as np

from twofold.errors import InvalidInput
from twofold.nn.npz import AnyArray

Container = TypeVar("Container", list[object], dict[object, object], set[object])
Handler: TypeAlias = "Callable[[_Machine, object], None]"  # runs an operation with its argument

DEPTH = 16  # deepest nesting of containers; a CIFAR batch has 3
SPARE = 1 << 20  # bytes that may be built beyond four times the size of the pickle
NUMBERS = "biuf"  # kinds of admitted dtypes
BYTE_ORDERS = ("<", ">", "=", "|")
PLAIN_DTYPE = (None, None, None, -1, -1, 0)  # no subarray, names, fields, own size, alignment or flags
MARK = object()


class _Refused(Exception):
    """Signal that a pickle asks for something that plain data never need."""


@dataclass(eq=False)
class _DType:
    """Hold the dtype that a pickle describes."""

    code: str
    order: str = "="

    def to_numpy(self) -> np.dtype[np.generic]:
        return np.dtype(self.code).newbyteorder(self.order)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Global:
    """Represent an admitted global, which is never imported."""

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


def plain_pickle(data: bytes, name: str) -> object:
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
    stack: list[object] = field(default_factory=list)
    memo: dict[object, object] = field(default_factory=dict)
    depths: dict[int, int] = field(default_factory=dict)  # of containers, by id
    kept: list[object] = field(default_factory=list)  # containers stay alive, so that no id is used twice
    spent: int = 0  # bytes and items passed to the makers of objects so far

    def run(self, data: bytes) -> object:
        for op, argument, _ in pickletools.genops(data):
            if op.name == "STOP":
                result = self.stack.pop()
                if self.stack:
                    raise ValueError("something is left on the stack")
                return result
            self._step(op.name, argument)
        raise ValueError("there is no end")

    def _step(self, op: str, argument: object) -> None:
        if op in IGNORED:
            return
        if op in CONSTANTS:
            self.stack.append(CONSTANTS[op])
        elif op in NUMBERS_AND_TEXTS:
            self.stack.append(argument)
        elif op in BYTE_TEXTS:  # texts of Python 2, which pickletools decodes
            self.stack.append(str(argument).encode("latin-1"))
        elif op in HANDLERS:
            HANDLERS[op](self, argument)
        else:
            raise _Refused(f"uses {op}, which is refused; only containers, numbers, texts and arrays are read")

    # Containers

    def pop_marked(self) -> list[object]:
        """Take all items down to the last mark off the stack."""
        place = len(self.stack) - 1
        while self.stack[place] is not MARK:
            place -= 1
            if place < 0:
                raise ValueError("there is no mark")
        items = self.stack[place + 1 :]
        del self.stack[place:]
        return items

    def push(self, container: object, items: Sequence[object] = ()) -> None:
        """Put a container with these items on the stack."""
        self.kept.append(container)
        self.depths[id(container)] = 1
        self._nest(container, items)
        self.stack.append(container)

    def _nest(self, container: object, items: Sequence[object]) -> None:
        """Record how deep the containers nest once the container holds these items."""
        deepest = max((self.depths.get(id(item), 0) for item in items), default=0)
        depth = max(self.depths[id(container)], deepest + 1)
        if depth > DEPTH:
            raise _Refused(f"nests containers more than {DEPTH} deep, which is refused")
        self.depths[id(container)] = depth

    def extend(self, items: list[object]) -> None:
        """Append items to the list on top of the stack."""
        target = self._top(list)
        self._nest(target, items)
        target.extend(items)

    def update(self, items: list[object]) -> None:
        """Set keys and values of the dictionary on top of the stack."""
        target = self._top(dict)
        self._nest(target, items)
        keys, values = items[::2], items[1::2]
        target.update(zip(_check_hashable(keys), values, strict=True))

    def add(self, items: list[object]) -> None:
        """Add items to the set on top of the stack."""
        self._top(set).update(_check_hashable(items))

    def _top(self, kind: type[Container]) -> Container:
        top = self.stack[-1]
        if not isinstance(top, kind):
            raise ValueError(f"the top of the stack is not a {kind.__name__}")
        return top

    def _spend(self, amount: int) -> None:
        """Count bytes or items that are read once more, so that a small pickle cannot take all time or memory."""
        self.spent += amount
        if self.spent > 4 * self.size + SPARE:
            raise _Refused("builds far more than it holds, which is refused")

    # Arrays

    def push_global(self, module: object, name: object) -> None:
        """Push a global by name."""
        if type(module) is not str or type(name) is not str:
            raise ValueError("the name of a global is not text")
        full_name = f"{module}.{name}"
        if full_name not in ADMITTED:
            raise _Refused(
                f"asks for the global {full_name[:100]!r}, which is refused; only NumPy arrays and built-in containers "
                "are read, since a pickle can run any code"
            )
        self.stack.append(_Global(ADMITTED[full_name]))

    def call(self) -> None:
        """Push what an admitted global makes of its arguments."""
        arguments = self.stack.pop()
        maker = self.stack.pop()
        if type(maker) is not _Global:
            raise _Refused("calls something, which is refused; only the makers of arrays and sets are called")
        if maker.name not in MAKERS or type(arguments) is not tuple:
            raise _Refused(f"calls {maker.name}, which is refused; only the makers of arrays and sets are called")
        for argument in arguments:
            if isinstance(argument, str | bytes | bytearray | list | tuple):
                self._spend(len(argument))
        made = MAKERS[maker.name](*arguments)
        if isinstance(made, set | frozenset):
            self.push(made)
        else:
            self.stack.append(made)

    def set_state(self) -> None:
        """Set the state of an array or dtype."""
        state = self.stack.pop()
        target = self.stack[-1]
        if type(target) is _DType:
            target.order = _read_byte_order(state)
        elif type(target) is np.ndarray:
            array_state = _check_array_state(state)
            self._spend(len(array_state[-1]))
            target.__setstate__(array_state)  # type: ignore[arg-type]  # the stubs want NumPy's own bool
        else:
            raise _Refused("sets the state of something other than an array or dtype, which is refused")


def _check_hashable(items: Sequence[object]) -> Sequence[object]:
    """Raise unless the items can be hashed quickly: nested tuples can take forever."""
    for item in items:
        if type(item) not in (str, bytes, int, float, bool, type(None)):
            raise _Refused(f"has a key of type {type(item).__name__}, which is refused; keys are texts and numbers")
    return items


def _encode(text: object, encoding: object = "latin1") -> bytes:
    """Encode as Python 3 writes bytes in old protocols; no other codec is offered."""
    if encoding not in ("latin1", "latin-1"):
        raise _Refused("asks for a codec other than latin1, which is refused")
    if type(text) is not str:
        raise ValueError("what is to be encoded is not text")
    return text.encode("latin-1")


def _make_dtype(code: object, align: object = False, copy: object = True) -> _DType:
    text = code.decode("latin-1") if type(code) is bytes else code
    if type(text) is not str or len(text) > 8 or np.dtype(text).kind not in NUMBERS:
        raise _Refused("asks for an array of something other than numbers, which is refused")
    return _DType(text)


def _make_empty_array(kind: object, shape: object, code: object) -> AnyArray:
    """Make an empty array, whose state the pickle sets next."""
    if kind != _Global("ndarray"):
        raise _Refused("asks for an array of another type than numpy.ndarray, which is refused")
    return np.empty(0, dtype=np.int8)


def _make_array(buffer: object, dtype: object, shape: object, order: object) -> AnyArray:
    """Make an array over bytes, as NumPy writes it in protocol 5."""
    if not isinstance(buffer, bytes | bytearray) or type(dtype) is not _DType:
        raise ValueError("an array needs bytes and a dtype")
    flat = np.frombuffer(buffer, dtype=dtype.to_numpy())
    if order == "C":
        return flat.reshape(_check_shape(shape), order="C")
    if order == "F":
        return flat.reshape(_check_shape(shape), order="F")
    raise ValueError("the order of an array is neither C nor F")


def _collect(kind: Callable[[Sequence[object]], object]) -> Callable[..., object]:
    def make(items: object = ()) -> object:
        if not isinstance(items, list | tuple):
            raise ValueError("a set needs a list of items")
        return kind(_check_hashable(items))

    return make


def _read_byte_order(state: object) -> str:
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


def _check_array_state(state: object) -> tuple[int, tuple[int, ...], np.dtype[np.generic], bool, bytes]:
    """Check and return the state of an array: version, shape, dtype, order and bytes."""
    if type(state) is not tuple or len(state) != 5 or state[0] != 1:
        raise _Refused("sets an unknown state of an array, which is refused")
    _, shape, dtype, fortran, content = state
    if type(dtype) is not _DType or type(content) is not bytes:
        raise _Refused("sets the state of an array of something other than numbers, which is refused")
    numpy_dtype = dtype.to_numpy()
    sizes = _check_shape(shape)
    if numpy_dtype.itemsize * math.prod(sizes) != len(content):
        raise ValueError("shape and bytes of an array do not fit")
    return 1, sizes, numpy_dtype, bool(fortran is True or fortran == 1), content


def _check_shape(shape: object) -> tuple[int, ...]:
    if type(shape) is not tuple or len(shape) > DEPTH:
        raise ValueError("the shape of an array is not a short tuple")
    for size in shape:
        if type(size) is not int or size < 0:
            raise ValueError("a size is not a whole number")
    return shape


def _memoise(machine: _Machine, _: object) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


def _put_memo(machine: _Machine, place: object) -> None:
    machine.memo[place] = machine.stack[-1]


def _get_memo(machine: _Machine, place: object) -> None:
    machine.stack.append(machine.memo[place])


def _pop(machine: _Machine, _: object) -> None:
    machine.stack.pop()


def _pop_marked(machine: _Machine, _: object) -> None:
    machine.pop_marked()


def _push_tuple_of(count: int) -> Handler:
    def handle(machine: _Machine, _: object) -> None:
        if len(machine.stack) < count:
            raise ValueError("the stack is too short")
        items = machine.stack[len(machine.stack) - count :]
        del machine.stack[len(machine.stack) - count :]
        machine.push(tuple(items), items)

    return handle


def _push_marked_dict(machine: _Machine, _: object) -> None:
    items = machine.pop_marked()
    machine.push({})
    machine.update(items)


def _append(machine: _Machine, _: object) -> None:
    machine.extend([machine.stack.pop()])


def _set_item(machine: _Machine, _: object) -> None:
    value = machine.stack.pop()
    key = machine.stack.pop()
    machine.update([key, value])


def _push_marked(kind: Callable[[list[object]], object]) -> Handler:
    def handle(machine: _Machine, _: object) -> None:
        items = machine.pop_marked()
        machine.push(kind(items), items)

    return handle


def _push_global(machine: _Machine, full_name: object) -> None:
    module, name = str(full_name).split(" ", 1)
    machine.push_global(module, name)


def _push_stack_global(machine: _Machine, _: object) -> None:
    name = machine.stack.pop()
    module = machine.stack.pop()
    machine.push_global(module, name)


MAKERS: dict[str, Callable[..., object]] = {
    "_reconstruct": _make_empty_array,
    "_frombuffer": _make_array,
    "dtype": _make_dtype,
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
HANDLERS: dict[str, Handler] = {
    "POP": _pop,
    "POP_MARK": _pop_marked,
    "DUP": lambda machine, _: machine.stack.append(machine.stack[-1]),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_SET": lambda machine, _: machine.push(set()),
    "LIST": _push_marked(list),
    "TUPLE": _push_marked(tuple),
    "FROZENSET": _push_marked(lambda items: frozenset(_check_hashable(items))),
    "TUPLE1": _push_tuple_of(1),
    "TUPLE2": _push_tuple_of(2),
    "TUPLE3": _push_tuple_of(3),
    "DICT": _push_marked_dict,
    "APPEND": _append,
    "APPENDS": lambda machine, _: machine.extend(machine.pop_marked()),
    "SETITEM": _set_item,
    "SETITEMS": lambda machine, _: machine.update(machine.pop_marked()),
    "ADDITEMS": lambda machine, _: machine.add(machine.pop_marked()),
    "PUT": _put_memo,
    "BINPUT": _put_memo,
    "LONG_BINPUT": _put_memo,
    "MEMOIZE": _memoise,
    "GET": _get_memo,
    "BINGET": _get_memo,
    "LONG_BINGET": _get_memo,
    "GLOBAL": _push_global,
    "STACK_GLOBAL": _push_stack_global,
    "REDUCE": lambda machine, _: machine.call(),
    "BUILD": lambda machine, _: machine.set_state(),
}
