"""Between callbacks and coroutines."""

from __future__ import annotations

import asyncio
from typing import TypeVar, cast

T = TypeVar("T")


def settle(future: asyncio.Future[T], result: T | None, error: BaseException | None) -> None:
    """Ends a future with what a callback got, unless the caller has given up on it. Bound to a
    future it is that callback."""
    if future.done():
        return
    if error is None:
        future.set_result(cast("T", result))
    else:
        future.set_exception(error)
