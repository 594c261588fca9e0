"""The page of a run: a lane for each node over time, roles by colour, messages as arrows.

The page is drawn from the trace, so it shows what ``replay --trace`` prints and nothing else. It is
one file without any reference to another (``trace_page.html`` is its frame).
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

VIOLATION = "!!!"
FAULTS = "faults"
"""The lane of the actions on the cluster."""

_SENT = re.compile(r"-> (\S+) #(\d+) (\w+)")
_RECEIVED = re.compile(r"<- (\S+) #(\d+) ")
_ROLE = re.compile(r"is ([a-z-]+) of term (\d+)")
_APPLIED = re.compile(r"applies (\d+) of term")
_OUTSIDE = ("act", "net", "all")
_ENDS = ("process dies", "power fails")


class RunPicture:
    """Collects what a page draws, from the lines of a trace in their order.

    Times are in seconds. ``spans`` are [lane, from, to, state, text]; ``messages`` are
    [sent, arrived or null, from lane, to lane, type, text]; ``events`` are [at, lane, kind, text].
    """

    def __init__(self) -> None:
        self.lanes: list[str] = []
        self.spans: list[list[Any]] = []
        self.messages: list[list[Any]] = []
        self.events: list[list[Any]] = []
        self.violation: list[Any] | None = None
        self.end = 0.0
        self._places: dict[str, int] = {}
        self._open: dict[int, tuple[float, str, str]] = {}  # lane -> since, state, text
        self._before_pause: dict[int, tuple[float, str, str]] = {}
        self._under_way: dict[int, list[Any]] = {}

    def add(self, line: str) -> None:
        """One event of the trace."""
        when, who, text = line.split(None, 2)
        at = self.end = float(when)
        if who == VIOLATION:
            self.violation = [at, text]
            return
        lane = self._lane(FAULTS if who in _OUTSIDE else who)
        if sent := _SENT.match(text):
            peer, number, kind = sent.groups()
            message = [at, None, lane, self._lane(peer), kind, text]
            self.messages.append(message)
            self._under_way[int(number)] = message
        elif received := _RECEIVED.match(text):
            self._arrived(at, lane, int(received.group(2)))
        else:
            self.events.append([at, lane, self._kind(at, who, lane, text), text])

    def finish(self) -> None:
        """Called at the end of the trace."""
        for lane in list(self._open):
            self._close(lane, self.end)

    def _lane(self, who: str) -> int:
        place = self._places.get(who)
        if place is None:
            place = self._places[who] = len(self.lanes)
            self.lanes.append(who)
        return place

    def _arrived(self, at: float, lane: int, number: int) -> None:
        message = self._under_way.get(number)
        if message is None:
            return
        if message[1] is None:
            message[1] = at
        else:  # the network has duplicated it
            self.messages.append([message[0], at, message[2], lane, message[4], message[5]])

    def _kind(self, at: float, who: str, lane: int, text: str) -> str:
        if who in _OUTSIDE:
            return "fault"
        if role := _ROLE.match(text):
            self._begin(at, lane, role.group(1), f"term {role.group(2)}")
            return "role"
        if _APPLIED.match(text):
            return "commit"
        if text in _ENDS:
            self._begin(at, lane, "down", text)
            return "fault"
        if text.startswith("boots"):
            self._begin(at, lane, "follower", "starts")
            return "role"
        if text == "is paused":
            self._before_pause[lane] = self._open.get(lane, (at, "follower", ""))
            self._begin(at, lane, "paused", "")
            return "fault"
        if text == "is resumed":
            _, state, text = self._before_pause.pop(lane, (at, "follower", ""))
            self._begin(at, lane, state, text)
            return "fault"
        if text.startswith("link "):
            return "link"
        if text.startswith(("payload", "message", "has ")):
            return "client"
        return "other"

    def _begin(self, at: float, lane: int, state: str, text: str) -> None:
        self._close(lane, at)
        self._open[lane] = (at, state, text)

    def _close(self, lane: int, at: float) -> None:
        begun = self._open.pop(lane, None)
        if begun is not None:
            since, state, text = begun
            self.spans.append([lane, since, at, state, text])


def render_page(title: str, lines: Iterable[str]) -> str:
    """The page of a run, from the lines of its trace."""
    picture = RunPicture()
    for line in lines:
        picture.add(line)
    picture.finish()
    order = sorted(range(len(picture.lanes)), key=lambda lane: _rank(picture.lanes[lane]))
    data = {
        "lanes": picture.lanes,
        "order": order,
        "spans": picture.spans,
        "messages": sorted(picture.messages, key=lambda message: message[0]),
        "events": picture.events,
        "violation": picture.violation,
        "end": picture.end,
    }
    # No text of a run may end the script element.
    packed = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    frame = files("simulator.view").joinpath("trace_page.html").read_text(encoding="utf-8")
    return frame.replace("@TITLE@", html.escape(title)).replace("@DATA@", packed)


def _rank(lane: str) -> tuple[int, str]:
    """Actions from outside come first, then the nodes, then all others."""
    if lane == FAULTS:
        return 0, lane
    return (1 if re.fullmatch(r"n\d+", lane) else 2), lane
