"""Reads the JSON bodies of requests; errors name the mistake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from broker.limits import BODY_LIMITS
from broker.remoting.protocol.errors import FieldError
from broker.remoting.protocol.frame import Frame
from broker.remoting.protocol.java_json import decode_json
from broker.remoting.protocol.json_limit import check_marks
from store.quoting import quoted


def json_object(
    request: Frame, subject: str, marks_max: int = BODY_LIMITS.json_marks
) -> Mapping[str, Any]:
    """The body of a request; errors call it ``subject``. Raises :class:`FieldError`."""
    try:
        check_marks(request.body, marks_max)
        value = decode_json(request.body)
    except ValueError as error:
        raise FieldError(f"the body is not JSON: {error}") from None
    return _object(value, subject)


def objects_of(body: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    """The objects in a list of ``body``. Raises :class:`FieldError`."""
    # C++ omits empty lists.
    values = body.get(name) or []
    if not isinstance(values, list):
        raise FieldError(f"{name} is not a list")
    return [_object(value, f"an element of {name}") for value in values]


def text_of(body: Mapping[str, Any], name: str) -> str:
    """Text in ``body`` that must not be empty. Raises :class:`FieldError`."""
    value = body.get(name)
    if type(value) is not str or not value:
        raise FieldError(f"{name} is no text, or empty: {quoted(value)}")
    return value


def _object(value: object, subject: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise FieldError(f"{subject} is not a JSON object")
    return value
