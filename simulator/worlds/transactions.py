"""A broker cluster whose clients have transactions (see ``workload/transaction_producer.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.engine.random_streams import CountingRandom
from simulator.hosts.broker_host import BrokerHost
from simulator.hosts.client_host import ClientHost
from simulator.invariants import Invariant
from simulator.invariants.broker.transactions import PublishedOnce
from simulator.workload.transaction_producer import TransactionalProducer, TransactionHistory
from simulator.worlds.broker_cluster import BrokerCluster

CHECK_MS = 1_000
PAUSE_SECONDS_MAX = 0.4


class TransactionalCluster(BrokerCluster):
    """See the module."""

    target_clients = (*BrokerCluster.target_clients, "t1", "t2")

    def _make_hosts(self) -> Sequence[BrokerHost]:
        hosts = super()._make_hosts()
        for host in hosts:
            host.settings = replace(
                host.settings,
                retains=True,
                transaction_timeout_ms=CHECK_MS,
                transaction_check_interval_ms=CHECK_MS,
            )
        return hosts

    def _make_clients(self, rng: CountingRandom) -> None:
        super()._make_clients(rng)
        self.paying = TransactionHistory()
        self._payers = [
            TransactionalProducer(
                self.name_servers,
                self.paying,
                self.streams.stream(f"payer {place}"),
                pause_max=self.added_pauses * PAUSE_SECONDS_MAX,
            )
            for place in range(2)
        ]
        self.clients += [
            ClientHost(
                f"t{place}", f"10.0.2.{place}", self.environment, payer.main, self._client_ended
            )
            for place, payer in enumerate(self._payers, 1)
        ]

    def _make_invariants(self) -> Sequence[Invariant]:
        self.published = PublishedOnce(self.paying, self.hosts, CHECK_MS)
        return [*super()._make_invariants(), self.published]

    def _stop_clients(self) -> None:
        super()._stop_clients()
        for payer in self._payers:
            payer.stop()

    async def _heal_clients(self) -> None:
        await super()._heal_clients()
        await self.until(self._all_ended, "every transaction ends")
        for client_host, payer in zip(
            self.clients[-len(self._payers) :], self._payers, strict=True
        ):
            if client_host.process is not None:
                client_host.process.run(payer.finish)
        await self.pass_time(3.0)

    def _all_ended(self) -> bool:
        asked = self.hosts_that_must_run()
        return not any(
            host.state_machine.state.transactions for host in self.hosts if host in asked
        )
