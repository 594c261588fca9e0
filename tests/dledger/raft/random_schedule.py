"""Random schedules: faults and work drawn one command at a time.

The commands are those of a scenario, so a schedule that breaks a rule is printed as one, and can be
kept as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from tests.dledger.raft.core_cluster import Cluster
from tests.dledger.raft.invariants import Invariants, check_converged
from tests.dledger.raft.scenario import Scenario

# Small, so that windows fill, caches shrink and segments end within a few entries.
LIMITS = (
    "limits cache_bytes_max=400 append_bytes_max=150 window_messages=3 window_bytes=400 "
    "uncommitted_bytes_max=2000 segment_size=500"
)
HEALED_MS = 6000

T = TypeVar("T")
Draw = Callable[[int], int]  # draw(n) is a number from 0 to n - 1


class BrokenRuleError(AssertionError):
    """An invariant was broken. The text is the schedule, as a scenario."""


class Schedule:
    """One run: its commands so far, and the invariants that are checked."""

    def __init__(
        self,
        names: Sequence[str],
        draw: Draw,
        *,
        spare: Sequence[str] = (),
        copies: bool = False,
    ) -> None:
        """With ``spare`` nodes, members change: those are added, all of them removed and wiped.

        With ``copies``, disks are replaced by old copies of themselves, one at a time.
        """
        self.commands: list[str] = []
        self._names = [*names]
        self._draw = draw
        self._spare = [*spare]
        self._incarnation = 10
        self.seen = Invariants()
        self._wiped = self.seen.wiped
        self._copied: dict[
            str, int
        ] = {}  # what an old copy must hold again before it counts as up to date
        self._scenario = Scenario([self.seen])
        self._proposed = 0
        self._do(f"{LIMITS} change_seconds=1" if spare else LIMITS)
        named = spare or copies
        self._do(f"nodes {' '.join(map(self._named, names) if named else names)}")
        self.seen.cluster = self._cluster = self._scenario.cluster
        moves: list[tuple[int, Callable[[Cluster], None]]] = [
            (60, self._deliver),
            (12, self._tick_first),
            (2, self._tick_any),
            (12, self._propose),
            (4, self._run),
            (6, self._complete),
            (3, self._hold),
            (3, self._release),
            (3, self._mark),
            (3, self._repeat),
            (2, self._drop),
            (2, self._delay),
            (2, self._late),
            (2, self._wait),
            (1, self._crash),
            (2, self._restart),
            (1, self._reboot),
            (1, self._break_link),
            (2, self._mend_link),
            (1, self._cut),
            (2, self._heal),
        ]
        if spare:
            moves += [
                (3, self._start_spare),
                (4, self._add_learner),
                (4, self._promote),
                (3, self._remove),
                (3, self._transfer),
                (1, self._wipe),
            ]
        if copies:
            moves += [(3, self._copy_back)]
        self._moves = [move for weight, move in moves for _ in range(weight)]

    def run(self, steps: int) -> None:
        """Runs ``steps`` commands with faults, then some time without. The group must recover."""
        try:
            for _ in range(steps):
                self._pick(self._moves)(self._cluster)
            self._heal_all()
            check_converged(self._cluster)
        except AssertionError as error:
            script = "\n".join(f"> {command}" for command in self.commands)
            raise BrokenRuleError(f"{error}\n{script}") from error

    def _heal_all(self) -> None:
        self._do("heal")
        for name in self._names:
            self._do(f"disk {name} release")
            if name not in self._cluster.cores:
                self._do(f"restart {name}")
        for a, b in self._cluster.links:
            self._do(f"connect {a} {b}")
        self._do(f"run {HEALED_MS}")

    def _do(self, command: str) -> None:
        self.commands.append(command)
        self._scenario.run(f"{command} quietly")

    def _pick(self, choices: Sequence[T]) -> T:
        return choices[self._draw(len(choices))]

    def _do_with_one(self, command: str, choices: Iterable[str]) -> None:
        found = list(choices)
        if found:
            self._do(command.format(self._pick(found)))

    # --- moves of members

    def _named(self, name: str) -> str:
        self._incarnation += 1
        return f"{name}={self._incarnation}"

    def _leaders(self, cluster: Cluster) -> list[str]:
        return [name for name, core in cluster.cores.items() if core.role.value == "leader"]

    def _start_spare(self, cluster: Cluster) -> None:
        if self._spare:
            name = self._spare.pop()
            self._names.append(name)
            self._do(f"start {self._named(name)}")

    def _add_learner(self, cluster: Cluster) -> None:
        self._do_with_one(
            "learner {}",
            (
                f"{leader} {name}"
                for leader in self._leaders(cluster)
                for name in self._names
                if name not in cluster.cores[leader].configuration.members
            ),
        )

    def _promote(self, cluster: Cluster) -> None:
        self._do_with_one(
            "promote {}",
            (
                f"{leader} {name}"
                for leader in self._leaders(cluster)
                for name in cluster.cores[leader].configuration.learners
            ),
        )

    def _remove(self, cluster: Cluster) -> None:
        self._do_with_one(
            "remove {}",
            (
                f"{leader} {name}"
                for leader in self._leaders(cluster)
                if len(cluster.cores[leader].configuration.members) > 2
                for name in cluster.cores[leader].configuration.members
            ),
        )

    def _transfer(self, cluster: Cluster) -> None:
        self._do_with_one(
            "transfer {}",
            (f"{leader} {n}" for leader in self._leaders(cluster) for n in self._names),
        )

    def _wipe(self, cluster: Cluster) -> None:
        """The disk of one node is lost. No other is lost before the log says that the node counts
        again."""
        noted = [
            core.configurations.at(core.commit_index).incarnations
            for core in cluster.cores.values()
        ]
        for name, number in list(self._wiped.items()):
            if any(found.get(name) == number for found in noted):
                del self._wiped[name]
        settled = all(
            found.get(name) == cluster.disks[name].incarnation
            for found in noted
            for name in self._names
        )
        quorums = [q for core in cluster.cores.values() for q in core.configuration.quorums]
        small = any(0 < len(voters) < 3 for voters in quorums)
        down = len(cluster.cores) < len(self._names)
        if self._wiped or down or not settled or small:
            return  # of two voters, both are a majority
        name = self._pick(list(cluster.cores))
        self._incarnation += 1
        self._wiped[name] = self._incarnation
        self._do(f"crash {name}")
        self._do(f"wipe {name} {self._incarnation}")
        self.seen.promised_terms.pop(name, None)

    def _copy_back(self, cluster: Cluster) -> None:
        """Replaces a node's disk by an old copy, without entries that all others know it held."""
        settled = len(cluster.cores) == len(self._names) and all(
            core.configuration.incarnations.get(name) == cluster.disks[name].incarnation
            for core in cluster.cores.values()
            for name in self._names
        )
        leaders = [cluster.cores[name] for name in self._leaders(cluster)]
        lost = any(progress.lost for each in leaders for progress in each.progress.values())
        if lost or not settled:
            return
        for name, needed in list(self._copied.items()):
            if len(cluster.disks[name].entries) > needed:
                del self._copied[name], self._wiped[name]
        if self._copied:
            return
        name = self._pick(self._names)
        number = cluster.disks[name].incarnation
        lengths = range(len(cluster.disks[name].entries) + 1)
        short = [
            length
            for length in lengths
            if all(
                core._evidence.lacks(name, number, length - 1)
                for other, core in cluster.cores.items()
                if other != name
            )
        ]
        if short:
            self._copied[name] = len(cluster.disks[name].entries) - 1
            self._wiped[name] = number
            self._do(f"crash {name}")
            self._do(f"forget {name} {self._pick(short)}")
            self._do(f"restart {name}")

    # --- moves; a move that is impossible now does nothing

    def _deliver(self, cluster: Cluster) -> None:
        links = dict.fromkeys(f"{packet.sender}->{packet.to}" for packet in cluster.flight)
        self._do_with_one("first {}", links)

    def _repeat(self, cluster: Cluster) -> None:
        links = dict.fromkeys(f"{packet.sender}->{packet.to}" for packet in cluster.flight)
        self._do_with_one("repeat {}", links)

    def _drop(self, cluster: Cluster) -> None:
        links = dict.fromkeys(f"{packet.sender}->{packet.to}" for packet in cluster.flight)
        self._do_with_one("drop {}", links)

    def _delay(self, cluster: Cluster) -> None:
        links = dict.fromkeys(f"{packet.sender}->{packet.to}" for packet in cluster.flight)
        self._do_with_one("delay {}", links)

    def _late(self, cluster: Cluster) -> None:
        links = dict.fromkeys(f"{packet.sender}->{packet.to}" for packet in cluster.late)
        self._do_with_one("late {}", links)

    def _tick_first(self, cluster: Cluster) -> None:
        if cluster.cores:
            due = min(cluster.cores, key=lambda name: cluster.cores[name].deadline())
            self._do(f"tick {due}")

    def _tick_any(self, cluster: Cluster) -> None:
        self._do_with_one("tick {}", cluster.cores)

    def _run(self, cluster: Cluster) -> None:
        self._do(f"run {self._pick((10, 100, 400))}")

    def _wait(self, cluster: Cluster) -> None:
        self._do(f"wait {self._pick((5, 50, 300, 700))}")

    def _propose(self, cluster: Cluster) -> None:
        self._proposed += 1
        leaders = [name for name, core in cluster.cores.items() if core.role.value == "leader"]
        self._do_with_one(f"propose {{}} x{self._proposed}", leaders)

    def _hold(self, cluster: Cluster) -> None:
        self._do_with_one("disk {} hold", cluster.cores)

    def _release(self, cluster: Cluster) -> None:
        self._do_with_one("disk {} release", self._held(cluster))

    def _complete(self, cluster: Cluster) -> None:
        names = self._held(cluster)
        if names:
            name = self._pick(names)
            self._do(f"disk {name} complete {self._pick(cluster.disks[name].pending).id}")

    def _held(self, cluster: Cluster) -> list[str]:
        return [name for name in cluster.cores if cluster.disks[name].pending]

    def _mark(self, cluster: Cluster) -> None:
        self._do_with_one("mark {}", cluster.cores)

    def _crash(self, cluster: Cluster) -> None:
        if self._copied:
            return  # what a node knows of other disks is only in memory
        if cluster.cores:
            name = self._pick(list(cluster.cores))
            kept = self._draw(len(cluster.disks[name].pending) + 1)
            self._do(f"crash {name} keep {kept} part {self._draw(3)}")

    def _restart(self, cluster: Cluster) -> None:
        self._do_with_one("restart {}", (n for n in self._names if n not in cluster.cores))

    def _reboot(self, cluster: Cluster) -> None:
        if self._copied:
            return
        self._do_with_one("reboot {}", cluster.cores)

    def _break_link(self, cluster: Cluster) -> None:
        self._do_with_one(
            "disconnect {}", (f"{a} {b}" for (a, b), up in cluster.links.items() if up)
        )

    def _mend_link(self, cluster: Cluster) -> None:
        self._do_with_one(
            "connect {}", (f"{a} {b}" for (a, b), up in cluster.links.items() if not up)
        )

    def _cut(self, cluster: Cluster) -> None:
        self._do_with_one(
            "cut {}", (f"{a}->{b}" for a in self._names for b in self._names if a != b)
        )

    def _heal(self, cluster: Cluster) -> None:
        self._do_with_one("heal {}", (f"{a}->{b}" for a, b in cluster.cuts))
