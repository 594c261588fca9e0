"""Reads the ext fields of a request in all forms that clients send.

Apache's clients send every value as a string; ali-ons sends numbers and booleans of JSON; C++
writes booleans as ``0`` and ``1``. Each reader takes all of them. It raises :class:`FieldError`,
which the server answers with response code 1 and the error's text as the remark.
"""

from __future__ import annotations

from typing import Final, TypeVar, overload

from broker.remoting.protocol.errors import FieldError
from broker.remoting.protocol.frame import Frame
from store.quoting import quoted
from store.text_numbers import whole_number

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

T = TypeVar("T")


class _Required:
    """The default of a field that is required."""


REQUIRED: Final = _Required()


@overload
def ext_str(frame: Frame, name: str) -> str: ...
@overload
def ext_str(frame: Frame, name: str, default: T) -> str | T: ...


def ext_str(frame: Frame, name: str, default: object = REQUIRED) -> object:
    """The field as text; numbers and booleans are written as Java writes them."""
    value = frame.ext.get(name)
    if type(value) is str:
        return value
    if value is None:
        return _absent(name, default)
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int | float):
        return str(value)
    raise FieldError(f"field {name} is not a string: {quoted(value)}")


@overload
def ext_int(frame: Frame, name: str, *, minimum: int = ..., maximum: int = ...) -> int: ...
@overload
def ext_int(
    frame: Frame, name: str, default: T, *, minimum: int = ..., maximum: int = ...
) -> int | T: ...


def ext_int(
    frame: Frame,
    name: str,
    default: object = REQUIRED,
    *,
    minimum: int = -INT64_MAX - 1,
    maximum: int = INT64_MAX,
) -> object:
    """The field as an integer within the bounds (by default those of an i64)."""
    value = frame.ext.get(name)
    if value is None or value == "":
        return _absent(name, default)
    try:
        number = whole_number(value) if type(value) is str else int(value)
    except (ValueError, TypeError, OverflowError):
        raise FieldError(f"field {name} is not an integer: {quoted(value)}") from None
    if number != value and type(value) is float:
        raise FieldError(f"field {name} is not an integer: {quoted(value)}")
    if not minimum <= number <= maximum:
        raise FieldError(f"field {name} is not between {minimum} and {maximum}: {number}")
    return number


@overload
def ext_bool(frame: Frame, name: str) -> bool: ...
@overload
def ext_bool(frame: Frame, name: str, default: T) -> bool | T: ...


def ext_bool(frame: Frame, name: str, default: object = REQUIRED) -> object:
    """The field as a boolean: ``true`` in any case, ``1`` or JSON true; anything else is false."""
    value = frame.ext.get(name)
    if value is None or value == "":
        return _absent(name, default)
    if type(value) is str:
        return value == "1" or value.lower() == "true"
    return value is True or value == 1


def _absent(name: str, default: object) -> object:
    if default is REQUIRED:
        raise FieldError(f"missing field {name}")
    return default
