"""The metrics of one broker process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping

from broker.context import BrokerContext
from broker.metrics.event_loop_lag import EventLoopLag
from broker.prometheus import catalog
from broker.prometheus.message_readings import client_readings, lag_readings, message_readings
from broker.prometheus.metric import Reading, single
from broker.prometheus.node_readings import (
    damage_readings,
    disk_readings,
    latency_readings,
    raft_readings,
)
from broker.prometheus.ports import PortMetrics, forwarded_reading, port_readings
from broker.prometheus.text_page import TextPage


class BrokerPage:
    """Reads the metrics of all parts of a broker."""

    def __init__(
        self,
        context: BrokerContext,
        loop_lag: EventLoopLag,
        ports: Mapping[str, PortMetrics],
        nameservers: Mapping[str, str],
        clock: Callable[[], float],
    ) -> None:
        """``nameservers`` has the last result of each NameServer: "registered", or why not."""
        self._context = context
        self._loop_lag = loop_lag
        self._ports = ports
        self._nameservers = nameservers
        config = context.config
        labels = (config.cluster, catalog.BROKER, config.group, config.node)
        self.page = TextPage(
            self.readings, dict(zip(catalog.NODE_LABELS, labels, strict=True)), clock
        )

    async def readings(self) -> AsyncIterator[Reading]:
        """Each metric of :data:`~broker.prometheus.catalog.ON_BROKER`; on a node that does not
        lead, without those of a leader."""
        context = self._context
        for read in (
            raft_readings,
            latency_readings,
            message_readings,
            client_readings,
            disk_readings,
            damage_readings,
        ):
            for reading in read(context):
                yield reading
        yield single(catalog.LOOP_LAG_SECONDS, self._loop_lag.seconds)
        for reading in port_readings(self._ports, len(context.node.core.raft_state.up)):
            yield reading
        yield forwarded_reading(self._ports)
        registered = [((name,), state == "registered") for name, state in self._nameservers.items()]
        yield Reading(catalog.NAMESERVER_REGISTERED, registered)
        for reading in await lag_readings(context):
            yield reading
