"""One entry made two: first its messages, then its commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.group_commit.batcher import Batcher
from dledger.errors import NotLeaderError

if TYPE_CHECKING:
    from broker.group_commit.pending_batch import Completion, QueueMessages
    from broker.state.commands import Command
    from dledger.errors import ProposeError
    from simulator.bugs.planted_bug import Original, Patch


def in_two_entries(patch: Patch, kinds: type[Command] | tuple[type[Command], ...]) -> None:
    """Commands of these kinds are added when the messages beside them are stored."""

    @patch.around(Batcher, "add_in_one_entry")
    def apart(
        together: Original[None],
        batcher: Batcher,
        messages: Sequence[QueueMessages],
        commands: Sequence[Command],
        completion: Completion | None = None,
    ) -> None:
        if not messages or not any(isinstance(each, kinds) for each in commands):
            together(batcher, messages, commands, completion)
            return

        def stored(error: ProposeError | None) -> None:
            if error is None and batcher.serving:
                together(batcher, (), commands, completion)
            elif completion is not None:
                completion(error or NotLeaderError(None))

        together(batcher, messages, (), stored)
