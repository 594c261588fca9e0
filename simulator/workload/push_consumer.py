"""Consumers like RocketMQ's Java push consumer, each a process of the run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from random import Random

from simulator.hosts.client_host import ClientHost
from simulator.workload.push_listener import PushListener
from simulator.workload.push_member import PushMember
from simulator.workload.push_settings import RETRY_PREFIX, PushSettings


class PushClient:
    """One member of a group. ``topics``: the wanted tags of each, none for all."""

    def __init__(
        self,
        group: str,
        topics: Mapping[str, Collection[str]],
        listener: PushListener,
        rng: Random,
        *,
        in_order: bool = False,
    ) -> None:
        wanted = {**topics, RETRY_PREFIX + group: ()}
        self._settings = PushSettings(group, wanted, listener, rng, in_order)
        self._member: PushMember | None = None
        self._boot = 0
        self._leaves_at = -1

    @property
    def notifications(self) -> int:
        """How often its present process was notified of changed members."""
        return 0 if self._member is None else self._member.notifications

    async def main(self, client_host: ClientHost) -> None:
        """The process of the client."""
        if self._leaves_at == client_host.boot:
            return
        self._boot, self._member = client_host.boot, PushMember(self._settings, client_host)
        await self._member.run()

    def close(self, client_host: ClientHost) -> None:
        """Leaves the group. Runs as an event of its process."""
        if self._member is not None and self._boot == client_host.boot:
            self._member.close()
        else:
            self._leaves_at = client_host.boot
