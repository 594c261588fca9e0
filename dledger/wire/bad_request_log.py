"""What our HTTP servers log about requests that they cannot read, or cannot answer any more."""

from __future__ import annotations

import logging
from typing import Any

from aiohttp.http_exceptions import HttpProcessingError

_TEXT_MAX = 200
"""Characters of what is wrong, which may repeat what was sent."""


class BadRequestLog(logging.LoggerAdapter[logging.Logger]):
    """The log for an aiohttp server, which takes a request that is no HTTP for an error of the
    server. Anybody may send one, also with header bytes that are no text: this logs one line and no
    traceback. A client that goes away before the answer is no error either: a peer that ends does
    so.
    """

    def exception(self, msg: object, *args: object, exc_info: Any = True, **changed: Any) -> None:
        """See :class:`logging.Logger`."""
        if isinstance(exc_info, HttpProcessingError | UnicodeError):
            text = exc_info.message if isinstance(exc_info, HttpProcessingError) else str(exc_info)
            what = " ".join(text.split())[:_TEXT_MAX]
            self.warning(f"{msg}: %s", *args, what)
        elif isinstance(exc_info, ConnectionResetError):
            self.debug(f"{msg}: %s", *args, exc_info)
        else:
            super().exception(msg, *args, exc_info=exc_info, **changed)
