"""Planted bugs Q: requests that a follower forwards to the leader."""

from __future__ import annotations

from collections.abc import Mapping

from broker.errors import Refusal
from broker.remoting import forwarder
from broker.remoting.connection import Connection
from broker.remoting.forwarded_frame import pack_forwarded
from broker.remoting.forwarder import Forwarder
from broker.remoting.protocol.errors import CallError
from broker.remoting.protocol.frame import Frame
from simulator.bugs.planted_bug import BugsOf, Patch
from simulator.worlds.registry import STALE_ROUTES

bug = BugsOf(STALE_ROUTES, seconds=8.0, usual=("crash", "partition", "stop"))


@bug("Q1x", "what is sent to any broker is stored", 5)
def nothing_forwarded(patch: Patch) -> None:
    """A follower forwards nothing."""
    patch.set(Forwarder, "take", lambda *_: False)


@bug("Q2x", "born host", 5)
def own_address_as_clients(patch: Patch) -> None:
    """A follower names itself as the client of a forwarded request."""
    packed = pack_forwarded

    @patch.instead(forwarder, "pack_forwarded")
    def own(request: Frame, _client: str) -> Mapping[str, str]:
        return packed(request, "10.0.0.1:1")


@bug("Q3x", "is there", 40)
def answered_before_the_leader(patch: Patch) -> None:
    """A follower without a connection to the leader returns the answer to another request."""
    answered = Forwarder._answered
    last: dict[Forwarder, Frame] = {}

    @patch.instead(Forwarder, "_answered")
    def hopeful(  # noqa: PLR0917 - as the method
        own: Forwarder,
        address: str,
        connection: Connection,
        request: Frame,
        error: Refusal,
        answer: Frame | None,
        failure: CallError | None,
    ) -> None:
        if answer is not None and answer.code == 0:
            last[own] = answer
        elif answer is None:
            answer = last.get(own)
        answered(own, address, connection, request, error, answer, failure)
