"""A table of routes with a clock of its own."""

from __future__ import annotations

from typing import Any

from broker.nameserver.registrations import Registration
from broker.nameserver.route_table import RouteTable
from broker.remoting.protocol.register_broker_body import DataVersion, QueueData, TopicTable

N0, N1, N2 = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


C0, C1, C2 = 10, 11, 12


CHANNELS = {N0: C0, N1: C1, N2: C2}
"""The connection over which each of them registers, where a test names no other."""


class Clock:
    def __init__(self) -> None:
        self.now = 5_000

    def __call__(self) -> int:
        return self.now


class Tables(RouteTable):
    """The tables, with a clock that tests move, and short methods to register."""

    def __init__(self) -> None:
        self.time = Clock()
        super().__init__(self.time)

    def leader(self, address: str = N0, *, version: int = 1, **changes: Any) -> None:
        self.join(0, address, version=version, **changes)

    def join(
        self,
        broker_id: int,
        address: str,
        *topics: str,
        version: int = 1,
        term: int | None = None,
        name: str = "broker-a",
        cluster: str = "c",
        channel: int | None = None,
        **changes: Any,
    ) -> Any:
        queues = {topic: QueueData(4, 4, 6) for topic in topics or ("T",)}
        table = TopicTable(DataVersion(counter=version), queues, changes.pop("filters", []))
        return self.register(
            Registration(cluster, name, broker_id, address, table, term=term, **changes),
            CHANNELS[address] if channel is None else channel,
        )

    def addresses(self, topic: str = "T") -> dict[str, dict[int, str]] | None:
        route = self.route(topic)
        if route is None:
            return None
        return {data["brokerName"]: data["brokerAddrs"] for data in route["brokerDatas"]}
