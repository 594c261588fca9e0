"""Planted bugs F: requests and their replies, and what a consumer selects by SQL92."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.client.asking import Asker, Reply
from broker.filter.sql92 import Selector
from broker.remoting.connection import Connection
from broker.remoting.frame import Frame
from simulator.bugs.plant import Bug, Patch
from simulator.worlds import ASKING


def everything_selected(patch: Patch) -> None:
    """An expression selects every message."""
    patch.set(Selector, "matches", lambda _selector, _properties: True)


def bounds_not_selected(patch: Patch) -> None:
    """The upper bound of BETWEEN is not part of what it selects."""
    matches = Selector.matches

    def within(selector: Selector, properties: Mapping[str, str]) -> bool:
        return properties.get("side") != "2" and matches(selector, properties)

    patch.set(Selector, "matches", within)


def reply_to_another_request(patch: Patch) -> None:
    """A client takes the first reply that comes for that of its latest request."""

    def replied(asker: Asker, connection: Connection, request: Frame) -> None:
        for waiting in asker._waiting.values():
            if not waiting.done():
                waiting.set_result(Reply(request.body, {}))
        connection.respond(request)

    patch.set(Asker, "replied", replied)


def _asking(id_: str, plant: Any, says: str, seeds: int, *kinds: str) -> Bug:
    return Bug(id_, plant, says, seeds, seconds=8.0, world=ASKING, kinds=kinds)


BUGS = (
    _asking("F1x", everything_selected, "does not select", 5),
    _asking("F2x", bounds_not_selected, "was delivered to nobody", 5),
    _asking("F3x", reply_to_another_request, "is answered with", 40, "pause", "crash"),
)
