"""Counts the steps of instrumented code (:mod:`.instrument`).

A turn of a loop, a call and an operation are one step each. Work in C over bytes, characters or
elements costs a step for each of them: a slice for what it copies, ``+`` and ``%`` for what they
make, ``in`` and ``find`` for what they search, a built-in function for its arguments. A regular
expression costs what its matcher tries (:mod:`.regex_steps`).

The work of a built-in function on its arguments is assumed to be linear: parsers in C (orjson,
msgpack, zlib) are not examined.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sized
from functools import cache
from types import FunctionType, MethodType
from typing import Any

from tests.linear.regex_steps import regex_steps

INSTRUMENTED = ("broker", "dledger", "store", "tomllib", "tests.linear.samples")
"""The modules whose steps are counted, and all modules in them."""

_COPIED = (bytes, bytearray, str, list, tuple, dict, set, frozenset)
_TEXT = (bytes, bytearray, str)
_IMMUTABLE = (bytes, str, tuple, int)
_SEARCHED_WHOLE = (bytes, bytearray, str, list, tuple, memoryview)
_WRITTEN_IN_PYTHON = (FunctionType, MethodType)
_SEARCHES = frozenset(("find", "index", "rfind", "rindex", "count"))
_CONSTANT = frozenset(
    (
        "abs",
        "add",
        "append",
        "callable",
        "cast",
        "chr",
        "clear",
        "discard",
        "enumerate",
        "get",
        "getattr",
        "hasattr",
        "hash",
        "id",
        "isinstance",
        "issubclass",
        "items",
        "iter",
        "keys",
        "len",
        "map",
        "memoryview",
        "move_to_end",
        "next",
        "object",
        "ord",
        "popitem",
        "popleft",
        "range",
        "release",
        "reversed",
        "setattr",
        "setdefault",
        "toreadonly",
        "type",
        "unpack_from",
        "values",
        "zip",
    )
)


@cache
def is_instrumented(module: str | None) -> bool:
    """Whether the steps within a module are counted."""
    return module is not None and any(
        module == name or module.startswith(f"{name}.") for name in INSTRUMENTED
    )


def _size(value: object) -> int:
    if isinstance(value, memoryview):
        return value.nbytes
    if isinstance(value, int):
        return value.bit_length() // 64
    return len(value) if isinstance(value, _COPIED) else 0


class Steps:
    """The counter, and what the instrumented code calls."""

    def __init__(self) -> None:
        self.count = 0
        self.entered: set[str] = set()
        """The decoders that were called."""

    def enter(self, function: str) -> None:
        self.entered.add(function)

    def tick(self, value: Any) -> Any:
        """A turn of a ``while``."""
        self.count += 1
        return value

    def each(self, values: Iterable[Any]) -> Iterator[Any]:
        """The turns of a ``for``."""
        for value in values:
            self.count += 1
            yield value

    def made(self, value: Any) -> Any:
        """The steps of a slice or an operator; a view copies nothing."""
        self.count += 1 + (0 if isinstance(value, memoryview) else _size(value))
        return value

    def grown(self, value: object) -> None:
        """The steps of ``+=``: an immutable value was copied."""
        self.count += 1 + (_size(value) if isinstance(value, _IMMUTABLE) else 0)

    def cut(self, value: object) -> None:
        """The steps of ``del`` of an element or a slice: what follows in a list is moved."""
        self.count += 1 + (len(value) if isinstance(value, list) else 0)

    def equals(self, one: Any, other: Any) -> Any:
        same = isinstance(one, Sized) and isinstance(other, Sized) and _size(one) == _size(other)
        self.count += 1 + (_size(one) if same else 0)
        return one == other

    def differs(self, one: Any, other: Any) -> Any:
        """As ``!=``. For arrays that is an array, so it is not the negation of :meth:`equals`."""
        self.equals(one, other)
        return one != other

    def contains(self, container: Any, one: Any) -> Any:
        whole = isinstance(container, _SEARCHED_WHOLE)
        self.count += 1 + _size(container if whole else one)
        return one in container

    def call(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        self.count += 1
        cost = _cost_of(function, args)
        if cost is None:
            return function(*args, **named)
        if cost is not _AS_FOUND:
            self.count += cost + sum(map(_size, named.values()))
            result = function(*args, **named)
            self.count += 0 if isinstance(result, memoryview) else _size(result)
            return result
        begin, end, needle = _searched(function, args)
        result = -1
        try:
            result = function(*args, **named)
        finally:
            name = function.__name__
            if result < 0 or name == "count":
                self.count += end - begin
            else:
                found = end - result if name.startswith("r") else result - begin
                self.count += found + needle
        return result


_AS_FOUND = -1


def _cost_of(function: Callable[..., Any], args: tuple[Any, ...]) -> int | None:
    """The steps for the arguments of a call; None if its steps are counted within."""
    if isinstance(function, _WRITTEN_IN_PYTHON):
        return None if is_instrumented(function.__module__) else sum(map(_size, args))
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "")
    if isinstance(function, type) and is_instrumented(function.__module__):
        return None
    if isinstance(owner, re.Pattern):
        return regex_steps(owner, name, args)
    if isinstance(owner, struct.Struct):
        return owner.size
    if isinstance(owner, _TEXT) and name in _SEARCHES:
        return _AS_FOUND
    if name in _CONSTANT:
        return 0
    if name in {"startswith", "endswith"} or isinstance(owner, dict):
        return sum(map(_size, args[:1]))
    if name in {"pop", "extend"}:
        moved = name == "pop" and isinstance(owner, list) and bool(args)
        return _size(owner) if moved else sum(map(_size, args))
    return sum(map(_size, args)) + (0 if isinstance(owner, type) else _size(owner))


def _searched(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[int, int, int]:
    """Where a search begins and ends, and the length of what it looks for."""
    owner: Any = getattr(function, "__self__", b"")
    size = len(owner)
    begin = args[1] if len(args) > 1 else None
    end = args[2] if len(args) > 2 else None
    first, last, _ = slice(begin, end).indices(size)
    return min(first, last), last, max(1, _size(args[0]))
