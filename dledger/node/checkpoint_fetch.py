"""Getting the newest checkpoint of a peer, a piece at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable

from dledger.node.peer_calls import Answer, PeerCalls
from dledger.wire.service_messages import CheckpointRequest, CheckpointResponse

log = logging.getLogger(__name__)

CHECKPOINT_BYTES_MAX = 1 << 30


class CheckpointFetch:
    """One checkpoint on its way here. Its peer keeps it meanwhile."""

    def __init__(
        self,
        calls: PeerCalls,
        source: str,
        done: Callable[[CheckpointResponse, bytes], None],
        failed: Callable[[], None],
    ) -> None:
        """``done`` gets the last answer and the whole file; ``failed`` is called if there is
        none, or no answer. Exactly one of them is called, once, unless the node ends before."""
        self._calls = calls
        self._source = source
        self._done = done
        self._failed = failed
        self._pieces: list[bytes] = []
        self._ask(-1, 0)

    def _ask(self, index: int, offset: int) -> None:
        self._calls.call(
            self._source,
            lambda number: CheckpointRequest(number, index, offset),
            lambda answer: self._came(index, offset, answer),
        )

    def _came(self, index: int, offset: int, answer: Answer | None) -> None:
        if not isinstance(answer, CheckpointResponse) or answer.offset != offset:
            self._failed()
            return
        if answer.index < 0 or (index >= 0 and answer.index != index) or not answer.data:
            self._failed()  # there is none, or not this one any more
            return
        offset += len(answer.data)
        if max(offset, answer.size) > CHECKPOINT_BYTES_MAX:
            log.error("a checkpoint of %d bytes is refused", answer.size)
            self._failed()
            return
        self._pieces.append(answer.data)
        if offset < answer.size:
            self._ask(answer.index, offset)
        else:
            self._done(answer, b"".join(self._pieces))
