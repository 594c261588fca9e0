"""Faults for a group while clients use it, drawn from a seed.

Faults that remove copies of data (a wiped disk, a change of the members) begin only in a healthy
group, where the others have everything. The seed does not decide what the operating system does:
the same seed gives the same faults in the same order, not the same run.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from random import Random

from broker.command_error import CommandError
from tests.soak.cluster import SoakCluster
from tests.soak.record import Record

Fault = Callable[[], Awaitable[None]]

REST_SECONDS = 2.5
CALM_SHARE = 0.3
"""Share of the rounds after which the group must become healthy by itself."""
COPIES_SHARE = 0.25
"""Share of the rounds with a fault that removes copies of data."""
BURSTS = 12


class Faults:
    """Runs rounds of faults until it is cancelled or stopped."""

    def __init__(
        self,
        cluster: SoakCluster,
        record: Record,
        rng: Random,
        note: Callable[[str], None],
        *,
        disk_that_fills: int | None,
    ) -> None:
        self.counts: dict[str, int] = {}
        self.whole_again: list[float] = []
        """How long the group took to become healthy each time, in seconds."""
        self._cluster = cluster
        self._record = record
        self._rng = rng
        self._note = note
        self._disk_that_fills = disk_that_fills
        self._stopped = False
        self._links_used = asyncio.Lock()
        self._free: set[int] = set()
        """Nodes without a fault at the moment."""

    def stop(self) -> None:
        """Makes the present round the last one."""
        self._stopped = True

    async def run(self) -> None:
        """Rounds, until :meth:`stop`."""
        rng = self._rng
        while not self._stopped:
            await asyncio.sleep(rng.uniform(0.2, REST_SECONDS))
            self._free = {*self._cluster.nodes}
            if rng.random() < COPIES_SHARE:
                if not await self.become_whole():
                    return
                copies = rng.choice([self._wipe, self._exchange_member, self._fill_disk])
                await asyncio.gather(copies(), self._light())
            elif rng.random() < 0.5:
                await self._light()
            else:
                await asyncio.gather(self._light(), self._light())
            for what in self._cluster.ended_by_themselves():
                self._record.find(what)
                await asyncio.to_thread(self._cluster.start_all)
            if rng.random() < CALM_SHARE and not await self.become_whole():
                return

    async def become_whole(self) -> bool:
        """Without a fault the group must become healthy by itself; if not, it is a finding."""
        self._note("look whether the group becomes whole")
        try:
            seconds = await asyncio.to_thread(self._cluster.wait_until_healthy)
        except CommandError as error:
            self._record.find(str(error))
            return False
        self.whole_again.append(seconds)
        return True

    async def _light(self) -> None:
        choices: list[Fault] = [
            *(self._kill, self._kill, self._kill_leader, self._pause, self._pause_leader),
            *(self._stop_one, self._restart_all, self._restart_namesrv, self._transfer),
        ]
        if self._cluster.network.missing is None:
            choices += [self._cut_one_way, self._isolate, self._lose, self._unplug]
        await self._rng.choice(choices)()

    def _begin(self, kind: str, target: str = "") -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self._note(f"{kind} {target}".rstrip())

    def _take(self, number: int | None = None) -> int | None:
        """A node without a fault, if possible ``number``."""
        free = sorted(self._free)
        if not free:
            return None
        chosen = number if number in self._free else self._rng.choice(free)
        self._free.discard(chosen)
        return chosen

    # --- processes

    async def _kill(self, number: int | None = None) -> None:
        chosen = self._take(number)
        pause = self._rng.choice((0.0, self._rng.uniform(0.0, 4.0)))
        if chosen is not None:
            self._begin("kill", f"n{chosen}")
            await asyncio.to_thread(self._cluster.end, chosen, kill=True)
            await asyncio.sleep(pause)
            await asyncio.to_thread(self._cluster.start, chosen)

    async def _kill_leader(self) -> None:
        await self._kill(await asyncio.to_thread(self._cluster.leader))

    async def _pause(self, number: int | None = None) -> None:
        chosen = self._take(number)
        seconds = self._rng.uniform(0.1, 6.0)
        if chosen is not None:
            self._begin("pause", f"n{chosen}")
            self._cluster.signal(chosen, signal.SIGSTOP)
            await asyncio.sleep(seconds)
            self._cluster.signal(chosen, signal.SIGCONT)

    async def _pause_leader(self) -> None:
        await self._pause(await asyncio.to_thread(self._cluster.leader))

    async def _stop_one(self) -> None:
        chosen = self._take()
        if chosen is not None:
            self._begin("stop", f"n{chosen}")
            await asyncio.to_thread(self._cluster.end, chosen, kill=False)
            await asyncio.to_thread(self._cluster.start, chosen)

    async def _restart_all(self) -> None:
        chosen = sorted(self._free)
        kill = self._rng.random() < 0.5
        self._free.clear()
        if chosen:
            self._begin("kill all" if kill else "stop all")
            await asyncio.to_thread(self._cluster.end, *chosen, kill=kill)
            for number in chosen:
                await asyncio.to_thread(self._cluster.start, number)

    async def _restart_namesrv(self) -> None:
        self._begin("kill the NameServer")
        await asyncio.to_thread(self._cluster.restart_namesrv)

    async def _transfer(self) -> None:
        chosen = self._rng.choice(sorted(self._cluster.nodes))
        self._begin("transfer leadership", f"to n{chosen}")
        try:
            await asyncio.to_thread(self._cluster.transfer, chosen)
        except CommandError as error:
            self._note(f"refused: {error}")

    # --- links

    async def _cut_one_way(self) -> None:
        sender, receiver = self._rng.sample(sorted(self._cluster.nodes), 2)
        self._begin("cut one way", f"n{sender} to n{receiver}")
        await self._cut([(sender, receiver)], self._rng.uniform(0.5, 6.0))

    async def _isolate(self) -> None:
        chosen = self._rng.choice(sorted(self._cluster.nodes))
        self._begin("isolate", f"n{chosen}")
        await self._cut(self._links(chosen), self._rng.uniform(0.5, 6.0))

    async def _lose(self) -> None:
        """Packets are lost in bursts, as on a bad cable."""
        chosen = self._rng.choice(sorted(self._cluster.nodes))
        self._begin("lose packets", f"of n{chosen}")
        links = self._links(chosen)
        for _ in range(BURSTS):
            await self._cut(links, self._rng.uniform(0.01, 0.15))
            await asyncio.sleep(self._rng.uniform(0.02, 0.4))

    async def _unplug(self) -> None:
        chosen = self._rng.choice(sorted(self._cluster.nodes))
        seconds = self._rng.uniform(0.5, 5.0)
        self._begin("unplug", f"n{chosen}")
        network = self._cluster.network
        async with self._links_used:
            await asyncio.to_thread(network.unplug, chosen)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(network.plug, chosen)

    def _links(self, chosen: int) -> list[tuple[int, int]]:
        others = [number for number in sorted(self._cluster.nodes) if number != chosen]
        return [pair for other in others for pair in ((chosen, other), (other, chosen))]

    async def _cut(self, links: list[tuple[int, int]], seconds: float) -> None:
        network = self._cluster.network
        async with self._links_used:
            for sender, receiver in links:
                await asyncio.to_thread(network.cut, sender, receiver)
            await asyncio.sleep(seconds)
            for sender, receiver in links:
                await asyncio.to_thread(network.mend, sender, receiver)

    # --- copies

    async def _wipe(self) -> None:
        chosen = self._take()
        if chosen is not None:
            self._begin("wipe", f"n{chosen}")
            await asyncio.to_thread(self._cluster.end, chosen, kill=True)
            await asyncio.to_thread(self._cluster.wipe, chosen)
            await asyncio.to_thread(self._cluster.start, chosen)

    async def _exchange_member(self) -> None:
        """Adds a new node, then removes one of the others."""
        old = self._take()
        if old is None or old == self._disk_that_fills:
            return
        self._begin("exchange member", f"n{old}")
        try:
            await asyncio.to_thread(self._cluster.exchange, old)
        except CommandError as error:
            self._record.find(f"n{old} cannot be exchanged: {error}")

    async def _fill_disk(self) -> None:
        chosen = self._disk_that_fills
        if chosen is None or self._take(chosen) != chosen:
            return
        self._begin("fill disk", f"of n{chosen}")
        with self._cluster.full_disk(chosen):
            await asyncio.sleep(self._rng.uniform(1.0, 8.0))
