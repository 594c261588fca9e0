"""A small language for stories about a group of cores.

A scenario is a text file. Lines that start with ``>`` are commands, lines that start with ``#`` are
prose, and what stands under a command is what it prints. ``python -m tests.dledger.raft.scenario``
rewrites the printed lines; the test compares them. Links are written ``n0->n1`` or, for both
directions, ``n0<->n1``. Any command may end with ``quietly``: only leaders, commits and errors are
printed then.

====================================  ==========================================================
``nodes n0 n1 n2``                    starts a group; all links stand, all disks are empty
                                      (``n0=7``: with an incarnation; so with ``start``)
``limits window_messages=2``          (before ``nodes``) limits and times other than the defaults
``log n0 1 1 2:x [term 3] [vote n1]   n0 starts anew with a log of entries of these terms (the last
[commit 0]``                          with body x), term 3 (or that of the last), vote, commit index
``tick n0``                           moves the clock to when n0 wants to act, and lets it
``wait 600``                          moves the clock by so many milliseconds; nobody acts
``run 2000``                          everybody acts and every message arrives, for so long
``deliver [LINK...]``                 delivers until these links (or all) are quiet
``first LINK``                        delivers the oldest message of a link only
``repeat LINK``                       delivers a copy of the oldest message; it stays in flight
``drop [LINK...]``                    loses what is in flight
``delay LINK``, ``late LINK``         puts what is in flight aside; delivers it much later
``cut LINK...``, ``heal [LINK...]``   from now on a link loses everything, and no node is told
``disconnect n0 n1``, ``connect ..``  the connection breaks or stands again, and both are told
``propose n0 x [y...]``               one entry for each word
``disk n0 hold``, ``release``         writes wait; all of them become durable at once
``disk n0 unreadable``, ``readable``  no entry can be read; it can again
``disk n0 complete 2``, ``report 1``  writes up to 2 are durable; n0 hears (again) that 1 is
``expire n0 4``                       entries below 4 are gone from the disk of n0, as too old
``mark n0``                           n0 notes on disk what it knows to be committed
``crash n0 [keep 2 [part 1]]``        writes that are not durable are lost, but for the first 2,
                                      and of the next one all but its first entry
``restart n0``                        starts a crashed node on what its disk kept
``forget n0 4``                       the disk loses entries from 4 on; seen at the next start
``reboot n0``                         n0 starts anew on its disk, and no peer notices
``learner n0 n3``, ``promote n0 n3``  the leader n0 adds n3 as a learner, makes a voter of it,
``remove n0 n3``                      takes it out
``start n3``                          starts a node that waits to be added
``transfer n0 n1``                    the leader n0 hands over to n1
``unhealthy n0 n1``, ``healthy n0 n1``  n1 tells n0 that it should not lead; that it may again
``damaged n0 n1``, ``whole n0 n1``    n1 tells n0 that entries of its log are damaged; that none are
``read n1``                           n1 asks for a read index
``wipe n0 7``                         n0, which is down, gets an empty disk of incarnation 7
``identity n0 7``                     the disk of n0 is of incarnation 7 from its next start on
``members n0``                        who is a member, as the log of n0 says
``show [n0...]``                      what a node is, knows and holds
====================================  ==========================================================
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from dledger.config import RaftConfig
from dledger.errors import ProposeError
from dledger.raft.configuration import MemberAddress
from dledger.raft.core import Raft
from dledger.raft.health import OwnHealth
from tests.dledger.raft.core_cluster import Cluster, Disk
from tests.dledger.raft.observer import Observer, Packet
from tests.dledger.raft.transcript import Transcript, describe
from tests.dledger.raft.written_log import written_log

SCENARIOS = Path(__file__).parent / "scenarios"


class ScenarioError(Exception):
    """A command is malformed or impossible."""


class Scenario:
    """Runs commands, and collects what they print."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._transcript = Transcript()
        self._observers = [self._transcript, *observers]
        self._config = RaftConfig()
        self._segment_size = 1 << 20
        self._reads = 0
        self.cluster: Cluster

    def run(self, line: str) -> list[str]:
        """One command, without the ``>``."""
        command, *words = line.split()
        self._transcript.quiet = bool(words) and words[-1] == "quietly"
        if self._transcript.quiet:
            words.pop()
        method: Callable[[list[str]], None] | None = getattr(self, f"do_{command}", None)
        if method is None:
            raise ScenarioError(f"unknown command: {line}")
        method(words)
        return self._transcript.take()

    def _say(self, line: str) -> None:
        self._transcript.lines.append(line)

    # --- the group and its nodes

    def do_limits(self, words: list[str]) -> None:
        settings = dict(word.split("=") for word in words)
        self._segment_size = int(settings.pop("segment_size", 1 << 20))
        limits: dict[str, Any] = {
            name: float(value) if name.endswith("_seconds") else int(value)
            for name, value in settings.items()
            if name != "preferred_leader"
        }
        limits.update({k: v for k, v in settings.items() if k == "preferred_leader"})
        self._config = RaftConfig(**limits)

    def do_nodes(self, words: list[str]) -> None:
        found = [word.partition("=") for word in words]
        self.cluster = Cluster(
            [name for name, _, _ in found],
            self._observers,
            config=self._config,
            incarnations={name: int(number) for name, _, number in found if number},
            segment_size=self._segment_size,
        )

    def do_log(self, words: list[str]) -> None:
        name, *rest = words
        terms: list[int] = []
        bodies: list[str] = []
        while rest and rest[0][0].isdigit():
            term, _, body = rest.pop(0).partition(":")
            terms.append(int(term))
            bodies.append(body)
        settings = dict(zip(rest[::2], rest[1::2], strict=True))
        disk = Disk(
            term=int(settings.get("term", terms[-1] if terms else 0)),
            vote=settings.get("vote", ""),
            entries=written_log(terms, bodies),
            mark=int(settings.get("commit", -1)),
        )
        self.cluster.reboot(name, disk)

    def do_crash(self, words: list[str]) -> None:
        settings = dict(zip(words[1::2], words[2::2], strict=True))
        part = settings.get("part")
        kept = int(settings.get("keep", 0))
        self.cluster.crash(words[0], kept, None if part is None else int(part))

    def do_forget(self, words: list[str]) -> None:
        disk = self.cluster.disks[words[0]]
        del disk.entries[int(words[1]) :]
        disk.mark = min(disk.mark, len(disk.entries) - 1)

    def do_reboot(self, words: list[str]) -> None:
        self.cluster.reboot(words[0])

    def do_restart(self, words: list[str]) -> None:
        self.cluster.restart(words[0])

    def do_show(self, words: list[str]) -> None:
        for name in words or self.cluster.names:
            core = self.cluster.cores.get(name)
            if core is None:
                self._say(f"  {name}: down")
                continue
            log = core.entry_cache
            starts = log.term_starts(log.last_index)
            terms = " ".join(f"{start}/{term}" for term, start in starts)
            self._say(
                f"  {name}: {core.role.value}, term {core.term}, leader {core.leader or 'unknown'},"
                f" log {log.first_index}..{log.last_index} (terms from {terms or 'nowhere'}),"
                f" durable {core.durable_index}, commit {core.commit_index}"
            )

    # --- members

    def do_start(self, words: list[str]) -> None:
        for word in words:
            name, _, number = word.partition("=")
            self.cluster.add(name, int(number or 0))

    def _ask(self, leader: str, event: Callable[[Raft], object]) -> None:
        try:
            self.cluster.ask(leader, event)
        except ProposeError as error:
            self._say(f"  {leader} refuses: {error}")

    def do_learner(self, words: list[str]) -> None:
        leader, node = words
        now = self.cluster.now
        address = MemberAddress(node, "", "")
        self._ask(leader, lambda core: core.add_learner(node, address, now))

    def do_promote(self, words: list[str]) -> None:
        leader, node = words
        self._ask(leader, lambda core: core.promote(node, self.cluster.now))

    def do_remove(self, words: list[str]) -> None:
        leader, node = words
        self._ask(leader, lambda core: core.remove(node, self.cluster.now))

    def do_unhealthy(self, words: list[str]) -> None:
        node, peer = words
        self.cluster.cores[node].health_reported(peer, healthy=False, intact=True)

    def do_healthy(self, words: list[str]) -> None:
        node, peer = words
        self.cluster.cores[node].health_reported(peer, healthy=True, intact=True)

    def do_damaged(self, words: list[str]) -> None:
        node, peer = words
        self._set_intact(node, peer, intact=False)

    def do_whole(self, words: list[str]) -> None:
        node, peer = words
        self._set_intact(node, peer, intact=True)

    def _set_intact(self, node: str, member: str, *, intact: bool) -> None:
        core = self.cluster.cores[node]
        if node == member:
            core.health_changed(OwnHealth(intact=intact))
        else:
            core.health_reported(member, healthy=True, intact=intact)

    def do_transfer(self, words: list[str]) -> None:
        leader, target = words
        self._ask(leader, lambda core: core.transfer_leadership(target, self.cluster.now))

    def do_read(self, words: list[str]) -> None:
        for name in words:
            self._reads += 1
            number = self._reads
            self._ask(name, partial(_ask_read, number, self.cluster.now))

    def do_wipe(self, words: list[str]) -> None:
        self.cluster.disks[words[0]] = Disk(incarnation=int(words[1]))

    def do_identity(self, words: list[str]) -> None:
        self.cluster.disks[words[0]].incarnation = int(words[1])

    def do_members(self, words: list[str]) -> None:
        for name in words:
            found = self.cluster.cores[name].configuration
            old = f" with old voters {' '.join(found.old_voters)}" if found.is_joint else ""
            learners = f", learners {' '.join(found.learners)}" if found.learners else ""
            disks = " ".join(f"{node}={of}" for node, of in sorted(found.incarnations.items()))
            noted = f", disks {disks}" if disks else ""
            self._say(f"  {name} knows voters {' '.join(found.voters)}{old}{learners}{noted}")

    # --- time

    def do_tick(self, words: list[str]) -> None:
        for name in words:
            self.cluster.tick(name)

    def do_wait(self, words: list[str]) -> None:
        self.cluster.now += int(words[0]) / 1000

    def do_run(self, words: list[str]) -> None:
        self.cluster.run(int(words[0]) / 1000)

    # --- messages

    def _on_links(self, words: list[str]) -> Callable[[Packet], bool]:
        ends = set(self._ends(words))
        return (lambda packet: packet[:2] in ends) if ends else (lambda packet: True)

    def _ends(self, words: list[str]) -> list[tuple[str, str]]:
        ends: list[tuple[str, str]] = []
        for word in words:
            both = "<->" in word
            a, _, b = word.partition("<->" if both else "->")
            if {a, b} - set(self.cluster.names):
                raise ScenarioError(f"no link: {word}")
            ends += [(a, b), (b, a)] if both else [(a, b)]
        return ends

    def _first(self, words: list[str]) -> Packet:
        wanted = self._on_links(words)
        for packet in self.cluster.flight:
            if wanted(packet):
                return packet
        raise ScenarioError(f"nothing is in flight on {words}")

    def do_deliver(self, words: list[str]) -> None:
        if not self.cluster.deliver_all(self._on_links(words)):
            self._say("nothing is in flight")

    def do_first(self, words: list[str]) -> None:
        self.cluster.deliver(self._first(words))

    def do_repeat(self, words: list[str]) -> None:
        packet = self._first(words)
        place = self.cluster.flight.index(packet)
        self.cluster.deliver(packet)
        self.cluster.flight.insert(place, packet)

    def _take_from_flight(self, words: list[str]) -> list[Packet]:
        wanted = self._on_links(words)
        taken = [packet for packet in self.cluster.flight if wanted(packet)]
        self.cluster.flight = [packet for packet in self.cluster.flight if not wanted(packet)]
        return taken

    def do_drop(self, words: list[str]) -> None:
        for sender, to, message in self._take_from_flight(words):
            if not self._transcript.quiet:
                self._say(f"{sender} -x {to}  {describe(message)}")

    def do_delay(self, words: list[str]) -> None:
        self.cluster.late += self._take_from_flight(words)

    def do_late(self, words: list[str]) -> None:
        wanted = self._on_links(words)
        late = [packet for packet in self.cluster.late if wanted(packet)]
        self.cluster.late = [packet for packet in self.cluster.late if not wanted(packet)]
        for packet in late:
            self.cluster.deliver(packet)

    # --- links

    def do_cut(self, words: list[str]) -> None:
        self.cluster.cuts.update(dict.fromkeys(self._ends(words), True))

    def do_heal(self, words: list[str]) -> None:
        for ends in self._ends(words) or list(self.cluster.cuts):
            self.cluster.cuts.pop(ends, None)

    def do_disconnect(self, words: list[str]) -> None:
        self.cluster.connect(words[0], words[1], False)

    def do_connect(self, words: list[str]) -> None:
        self.cluster.connect(words[0], words[1], True)

    # --- the log and the disk

    def do_propose(self, words: list[str]) -> None:
        for body in words[1:]:
            try:
                self.cluster.propose(words[0], body.encode())
            except ProposeError as error:
                self._say(f"  {words[0]} does not take {body}: {error}")

    def do_disk(self, words: list[str]) -> None:
        match words:
            case [name, "hold"]:
                self.cluster.hold(name)
            case [name, "release"]:
                self.cluster.release(name)
            case [name, "readable" | "unreadable" as state]:
                self.cluster.disks[name].readable = state == "readable"
            case [name, "complete", number]:
                self.cluster.complete(name, int(number))
            case [name, "report", number]:
                self.cluster.report(name, int(number))
            case _:
                raise ScenarioError(f"unknown command: disk {words}")

    def do_expire(self, words: list[str]) -> None:
        self.cluster.cores[words[0]].expired(int(words[1]))

    def do_mark(self, words: list[str]) -> None:
        self.cluster.save_mark(words[0])


def _ask_read(number: int, now: float, core: Raft) -> None:
    core.read_index(number, now)


def play(text: str, observers: Iterable[Observer] = ()) -> str:
    """The scenario with the present output of its commands."""
    scenario = Scenario(observers)
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(">"):
            lines.append(line)
            lines += scenario.run(line[1:])
        elif line.startswith("#") or not line:
            lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Rewrites the printed lines of all scenarios (or of those named)."""
    paths = [Path(name) for name in sys.argv[1:]] or sorted(SCENARIOS.glob("*.txt"))
    for path in paths:
        path.write_text(play(path.read_text()))


if __name__ == "__main__":
    main()
