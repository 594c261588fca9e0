"""Brokers and a NameServer with access control: an admin, and clients with accounts."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.hosts.broker_host import BrokerHost
from simulator.invariants.broker.access_decisions import AccessDecisions
from simulator.workload.account_admin import HOLDERS, TOPICS, AccountAdmin
from simulator.workload.account_holders import AccountHolder
from simulator.workload.account_requests import AccountHistory
from simulator.worlds.cluster import Cluster
from simulator.worlds.workload import Workload

PAUSE_MAX = 0.15


class Accounts(Workload):
    """See the module. ``a0`` is the admin, the others hold an account each."""

    targets = ("a0", *(f"h{place}" for place in range(len(HOLDERS))))

    def __init__(self, cluster: Cluster[BrokerHost]) -> None:
        super().__init__()
        self._cluster = cluster
        self.history = AccountHistory()
        stream = cluster.streams.stream
        self._admin = AccountAdmin(self.history, stream("admin"), self._addresses)
        self._holders = [
            AccountHolder(
                access_key,
                self.history,
                stream(f"holder {access_key}"),
                self._addresses,
                pause_max=cluster.settings.added_pauses * PAUSE_MAX,
            )
            for access_key in HOLDERS
        ]
        self.histories = [self.history]
        self.clients = clients = (self._admin, *self._holders)
        mains = [each.main for each in clients]
        self.client_hosts = cluster.client_hosts(self.targets, "10.0.6", mains)
        self.decisions = AccessDecisions(cluster.hosts, self.history, TOPICS)
        self.history.listeners.append(self.decisions)
        self.invariants = [self.decisions]

    def _addresses(self) -> Sequence[str]:
        return [host.addresses[1] for host in self._cluster.hosts_that_must_run()]

    def counts(self) -> tuple[int, int]:
        """See :class:`Workload`."""
        return self.history.answered, self.history.unknown

    async def heal(self) -> None:
        """See :class:`Workload`."""
        cluster = self._cluster
        await cluster.until(
            lambda: all(each.served_in_the_end for each in self._holders),
            "every account is served at every broker",
        )
        self._admin.finished = True
        await cluster.until(lambda: not cluster.open_calls(), "every call ends")
        if self.decisions.refused:
            cluster.trace.coverage_mark("request of an account refused")
        await cluster.pass_time(3.0)
