"""Clients that have transactions (see ``workload/transaction_producer.py``)."""

from __future__ import annotations

from simulator.hosts.broker_host import BrokerHost
from simulator.invariants.broker.transactions import PublishedOnce
from simulator.workload.transaction_producer import TransactionalProducer, TransactionHistory
from simulator.worlds.cluster import Cluster
from simulator.worlds.workload import Workload

PAUSE_SECONDS_MAX = 0.4


class Transactions(Workload):
    """See the module. Brokers must keep what waits (``BrokerSettings.retains``)."""

    targets = ("t1", "t2")

    def __init__(self, cluster: Cluster[BrokerHost]) -> None:
        super().__init__()
        self._cluster = cluster
        self.history = TransactionHistory()
        self._payers = [
            TransactionalProducer(
                self.history,
                cluster.streams.stream(f"payer {place}"),
                pause_max=cluster.settings.added_pauses * PAUSE_SECONDS_MAX,
            )
            for place in range(2)
        ]
        mains = [each.main for each in self._payers]
        self.client_hosts = cluster.client_hosts(self.targets, "10.0.2", mains)
        self.clients = self._payers
        check_ms = cluster.settings.broker.transaction_check_interval_ms
        self.published = PublishedOnce(self.history, cluster.hosts, check_ms)
        self.invariants = [self.published]

    async def heal(self) -> None:
        """See :class:`Workload`."""
        await self._cluster.until(self._all_ended, "every transaction ends")
        for client_host, payer in zip(self.client_hosts, self._payers, strict=True):
            if client_host.process is not None:
                client_host.process.run(payer.finish)
        await self._cluster.pass_time(3.0)

    def _all_ended(self) -> bool:
        asked = self._cluster.hosts_that_must_run()
        return not any(host.state_machine.state.transactions for host in asked)
