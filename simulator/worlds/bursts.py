"""A whole cluster whose impatient producer, and who reads and writes offsets, do much at once.

So entries hold many requests, their answers come in any order, and half of what one client sent at
an instant may fail over while the other half is stored. A world of its own, so that the seeds of
the others go on meaning what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from simulator.worlds.broker_cluster import BrokerCluster


class BurstsCluster(BrokerCluster):
    """See the module."""

    impatience: ClassVar[Sequence[float]] = (0.03, 0.2, 1.5)
    client_bursts: ClassVar[Sequence[int]] = (1, 2, 4, 8, 16)
    register_bursts: ClassVar[Sequence[int]] = (1, 2, 4)
