"""Connections and refusals of the ports of a process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from broker.prometheus import catalog
from broker.prometheus.metric import Reading


class PortMetrics(NamedTuple):
    """The counts of one port."""

    connections: Callable[[], int]
    refusals: Mapping[str, int]
    """Refusals by reason."""

    forwarded: Callable[[], int] = lambda: 0
    """Requests that were forwarded to the leader."""


NO_PORT = PortMetrics(lambda: 0, {})


def forwarded_reading(ports: Mapping[str, PortMetrics]) -> Reading:
    """The forwarded requests of each port of a broker."""
    return Reading(
        catalog.FORWARDED, [((name,), float(port.forwarded())) for name, port in ports.items()]
    )


def port_readings(ports: Mapping[str, PortMetrics], peers: int | None = None) -> list[Reading]:
    """Connections and refusals by port; ``peers`` are the connections to other nodes."""
    connections = [((name,), float(port.connections())) for name, port in ports.items()]
    if peers is not None:
        connections.append((("peer",), peers))
    refused = [
        ((name, reason), count)
        for name, port in ports.items()
        for reason, count in sorted(port.refusals.items())
    ]
    return [Reading(catalog.CONNECTIONS, connections), Reading(catalog.REFUSED, refused)]
