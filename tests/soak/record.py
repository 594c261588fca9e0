"""Records requests and answers of a soak's clients, and finds broken promises of docs/safety.md.

A body is ``client number`` and filler, so a message of a topic is known by its body. A send without
an answer is unknown: the message may be in the log, once, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Place = tuple[str, int, int]
"""Topic, queue id, offset."""

FINDINGS_MAX = 200
"""More findings are only counted."""


@dataclass(slots=True)
class Send:
    """One message that a client handed to its producer."""

    topic: str
    body: bytes
    lane: str
    """Sends of one lane wait for each other; empty for no lane."""
    place: Place | None = None
    """Where it is stored, as the producer was told."""


@dataclass(slots=True)
class Silence:
    """The longest time without an acknowledgement, in seconds, and when it began."""

    seconds: float = 0.0
    since: float = 0.0


@dataclass(slots=True)
class Record:
    """The record. Clients write it on one event loop. ``now``: seconds since the start."""

    now: Callable[[], float]
    findings: list[str] = field(default_factory=list)
    findings_untold: int = 0
    sends: dict[bytes, Send] = field(default_factory=dict)
    unknown: int = 0
    refused: int = 0
    acknowledged: int = 0
    delivered: int = 0
    decisions: dict[bytes, bool | None] = field(default_factory=dict)
    """By transaction: committed, rolled back, or ``None`` if not decided yet."""
    begun: set[bytes] = field(default_factory=set)
    """Transactions whose half message was acknowledged."""
    silence: Silence = field(default_factory=Silence)
    bodies: dict[Place, bytes] = field(default_factory=dict)
    """By place, the body that a producer, a consumer or a reader was told of."""
    given: dict[str, set[Place]] = field(default_factory=dict)
    """By group, the messages that its members got."""
    last_acknowledged_at: float = 0.0
    _sent_up_to: dict[tuple[str, str, int], int] = field(default_factory=dict)
    _given_up_to: dict[tuple[str, str, int], int] = field(default_factory=dict)
    _offset_asked: int = -1
    _offset_written: int = -1
    _offsets_unknown: set[int] = field(default_factory=set)

    def find(self, what: str) -> None:
        """Notes a broken promise."""
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(f"{self.now():8.2f} s: {what}")
        else:
            self.findings_untold += 1

    # --- producers

    def send(self, topic: str, body: bytes, lane: str = "") -> Send:
        """A client gives a message to its producer."""
        sent = self.sends[body] = Send(topic, body, lane)
        return sent

    def acknowledge(self, sent: Send, place: Place) -> None:
        """The producer was told that the message is stored there."""
        self.acknowledged += 1
        self._heard()
        sent.place = place
        self._see("a producer", place, sent.body)
        if sent.lane:
            topic, queue_id, offset = place
            before = self._sent_up_to.get((sent.lane, topic, queue_id), -1)
            if offset <= before:
                self.find(f"{sent.lane} sent {_name(sent.body)} to {place} after offset {before}")
            self._sent_up_to[sent.lane, topic, queue_id] = offset

    def fail(self, sent: Send, *, unknown: bool) -> None:
        """No answer, or a refusal. A message with an unknown outcome may still be stored."""
        if unknown:
            self.unknown += 1
        else:
            self.refused += 1

    def _heard(self) -> None:
        now = self.now()
        since = self.last_acknowledged_at
        if now - since > self.silence.seconds:
            self.silence = Silence(now - since, since)
        self.last_acknowledged_at = now

    # --- consumers and readers

    def deliver(self, group: str, member: str, place: Place, body: bytes) -> None:
        """A member of a group got a message. In its life, offsets of a queue only rise."""
        self.delivered += 1
        self.given.setdefault(group, set()).add(place)
        self.read(member, place, body)

    def read(self, reader: str, place: Place, body: bytes) -> None:
        """A reader got a message. Offsets of its queue only rise."""
        topic, queue_id, offset = place
        before = self._given_up_to.get((reader, topic, queue_id), -1)
        if offset <= before:
            self.find(f"{reader} is given {place} after offset {before}")
        self._given_up_to[reader, topic, queue_id] = offset
        self._see(reader, place, body)

    def write_offset(self, offset: int) -> None:
        """The only writer of an offset asks to commit it. Its offsets only rise."""
        if self._offset_asked != self._offset_written:
            self._offsets_unknown.add(self._offset_asked)
        self._offset_asked = offset

    def wrote_offset(self) -> None:
        """The writer was told that its offset is committed."""
        self._offset_written = self._offset_asked

    def read_offset(self, offset: int | None) -> None:
        """The leader says which offset is committed."""
        least, most = self._offset_written, self._offset_asked
        known = least <= (-1 if offset is None else offset) <= most
        if (
            not known and offset not in self._offsets_unknown
        ):  # it may be committed at any later time
            self.find(f"an offset was set to {least}, then perhaps to {most}, and is {offset}")

    def _see(self, who: str, place: Place, body: bytes) -> None:
        known = self.bodies.setdefault(place, body)
        if known != body:
            self.find(f"{who} has {_name(body)} at {place}, where {_name(known)} was")

    # --- at the end

    def check_stored(self, stored: Mapping[Place, bytes]) -> None:
        """``stored``: all that the group has at the end, read through once, each queue dense."""
        by_body: dict[bytes, Place] = {}
        for place, body in stored.items():
            sent = self.sends.get(body)
            if sent is None or sent.topic != place[0]:
                self.find(f"{place} holds {_name(body)}, which nobody sent there")
            if body in by_body:
                self.find(f"{_name(body)} is stored twice, as {by_body[body]} and {place}")
            by_body[body] = place
        for place, body in self.bodies.items():
            found = stored.get(place)
            if found is None:
                self.find(f"{_name(body)} was at {place}, and is gone")
            elif found != body:
                self.find(f"{_name(body)} was at {place}, where {_name(found)} is")
        for body, decision in self.decisions.items():
            if decision and body in self.begun and body not in by_body:
                self.find(f"transaction {_name(body)} was committed, and is not published")
            elif not decision and body in by_body:
                self.find(f"transaction {_name(body)} was not committed, and is published")

    def check_given(self, group: str, stored: Mapping[Place, bytes]) -> None:
        """Checks that every message has come to some member of the group."""
        missing = stored.keys() - self.given.get(group, set())
        for place in sorted(missing):
            self.find(f"{_name(stored[place])} at {place} never came to a member of {group}")


def _name(body: bytes) -> str:
    """The beginning of a body, without the filler."""
    return repr(body[:24].rstrip(b".").decode(errors="replace"))
