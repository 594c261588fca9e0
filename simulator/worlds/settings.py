"""How busy the clients of a world are, and the settings of its groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from broker.client.config import ConsumerConfig
from simulator.hosts.broker_host import BrokerSettings
from simulator.workload.consumer import CONFIG as CONSUMER_CONFIG
from simulator.workload.producer import CONFIG as PRODUCER_CONFIG

HEALING_SECONDS = 20.0
"""Within this time of the last fault all replicas must agree and a proposal must commit."""


BROKER_SETTINGS = BrokerSettings()


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """If several values are given, the seed draws one for a run, or one each time."""

    healing_seconds: float = HEALING_SECONDS
    broker: BrokerSettings = BROKER_SETTINGS
    heartbeats: Sequence[float] = (0.1, 0.2)
    """Seconds between two heartbeats of a leader; an election takes six times as long."""
    scrub_passes: Sequence[float] = (2.0, 4.0)
    """Seconds between two passes of the scrub over the log."""

    client_pauses: Sequence[float] = (0.15, 0.3, 0.6)
    """The longest pauses between two requests of a producer, in seconds."""
    patient_pauses: float = 1.0
    """The factor of the patient producer's pauses."""
    client_bursts: Sequence[int] = (1,)
    """The requests that the impatient producer sends at the same instant; drawn each time."""
    impatience: Sequence[float] = (PRODUCER_CONFIG.request_seconds,)
    """Seconds after which the impatient producer sends a request again."""
    register_pauses: float = 2.0
    """The factor of the pauses of clients that ask for offsets and topics."""
    register_bursts: Sequence[int] = (1,)
    """The offsets and topics that a client asks for at the same instant; drawn each time."""
    reads_at_followers: bool = False
    """Offsets and topics are read at any broker."""
    queues_per_topic: int = PRODUCER_CONFIG.default_queues
    """Of the topics that the producers make."""
    consumer_config: ConsumerConfig = CONSUMER_CONFIG

    added_pauses: float = 1.0
    """The factor of the pauses of clients that a world adds."""
    delaying_bursts: Sequence[int] = (1,)
    """The scheduled messages that are sent at the same instant; drawn each time."""

    def for_long_runs(self) -> WorldSettings:
        """Twice as long pauses between the requests of clients. Damage at rest is repaired within
        four passes of the scrub, which must be shorter than ``healing_seconds``."""
        return replace(
            self,
            client_pauses=[2 * pause for pause in self.client_pauses],
            added_pauses=2 * self.added_pauses,
            scrub_passes=(3.0, 4.0),
        )


BUSY = WorldSettings()

BURSTS = replace(
    BUSY,
    impatience=(0.03, 0.2, 1.5),
    client_bursts=(1, 2, 4, 8, 16),
    register_bursts=(1, 2, 4),
)
"""Much is done at once. So entries hold many requests, and their answers come in any order. Half of
a client's messages of one instant may fail over while the other half is stored."""

CALM = replace(
    BURSTS,
    client_pauses=(0.32, 0.43, 0.54),
    patient_pauses=6.0,
    client_bursts=(1, 2, 4, 8, 16, 32),
    register_pauses=3.0,
    register_bursts=(1, 2, 4, 8),
    queues_per_topic=2,
    consumer_config=replace(
        CONSUMER_CONFIG,
        suspend_seconds=8.0,
        pull_seconds=10.0,
        heartbeat_seconds=8.0,
        rebalance_seconds=8.0,
        commit_seconds=3.0,
    ),
    heartbeats=(0.2,),
    scrub_passes=(6.0, 12.0),
)
"""Fewer entries and less housekeeping in a second, because most of a run's cost is the way of each
entry through three brokers. Here clients do several things at the same instant, and then pause
longer. They send, receive, write and read some 21 times a second, as elsewhere, in fewer entries.
So the same time has more seconds with faults. Other settings test what shows only under load.
Consumers commit every 3 seconds (shipped: 5, elsewhere: 1), leaders beat five times a second
(shipped: ten, elsewhere: either)."""

SHARED_CALM = replace(
    CALM,
    client_pauses=(0.6, 0.9, 1.2),
    patient_pauses=4.0,
    register_pauses=4.0,
    added_pauses=3.0,
    delaying_bursts=(1, 2, 4, 8),
)
"""For worlds that add clients: all together ask for as much as those of ``CALM`` alone."""
