"""A whole cluster that has fewer entries and less housekeeping in a second.

Most of what a run costs is the way of each entry through three brokers. Here the impatient producer
and those who ask for offsets do several things at the same instant, and then pause longer: about as
much is asked for in a second, in fewer entries, which hold more. So a second costs less, and more
seconds with faults are seen in the same time; the other worlds are for what only shows under load.
Consumers commit every 3 seconds (shipped: 5, the other worlds: 1), and say less often that they are
there; leaders beat five times a second (shipped: ten, the other worlds: either). Damage at rest is
looked for less often, where none is done. A world of its own, so that the seeds of the others go on
meaning what they mean.
"""

from __future__ import annotations

from dataclasses import replace

from simulator.worlds.broker_cluster import BrokerCluster
from simulator.worlds.bursts import BurstsCluster
from simulator.worlds.follower_reads import FollowerReadsCluster
from simulator.worlds.message_lookup import MessageLookupCluster
from simulator.worlds.push_consumers import PushConsumersCluster
from simulator.worlds.request_reply import RequestReplyCluster
from simulator.worlds.scheduled_messages import ScheduledMessagesCluster
from simulator.worlds.transactions import TransactionalCluster


class LowRateCluster(BurstsCluster):
    """See the module. Its clients send, are given, write and read some 21 times a second."""

    client_pauses = (0.32, 0.43, 0.54)
    patient_pauses = 6.0
    client_bursts = (1, 2, 4, 8, 16, 32)
    register_pauses = 3.0
    register_bursts = (1, 2, 4, 8)
    queues_per_topic = 2
    consumer_config = replace(
        BrokerCluster.consumer_config,
        suspend_seconds=8.0,
        pull_seconds=10.0,
        heartbeat_seconds=8.0,
        rebalance_seconds=8.0,
        commit_seconds=3.0,
    )
    heartbeats = (0.2,)
    scrub_passes = (6.0, 12.0)


class SharedLowRate(LowRateCluster):
    """Calmer still, for worlds that add clients: all together ask for about as much as those of the
    calm world alone."""

    client_pauses = (0.6, 0.9, 1.2)
    patient_pauses = 4.0
    register_pauses = 4.0
    added_pauses = 3.0


class LowRateScheduledMessagesCluster(SharedLowRate, ScheduledMessagesCluster):
    """Messages that wait for their time, several of which come at once."""

    delaying_bursts = (1, 2, 4, 8)


class LowRateTransactionalCluster(SharedLowRate, TransactionalCluster):
    """Producers with transactions."""


class LowRateFollowerReadsCluster(SharedLowRate, FollowerReadsCluster):
    """Offsets and topics are read at any broker."""


class LowRateRequestReplyCluster(SharedLowRate, RequestReplyCluster):
    """Requests with replies, and SQL92."""


class LowRatePushConsumersCluster(SharedLowRate, PushConsumersCluster):
    """Consumers like RocketMQ's Java push consumer."""


class LowRateMessageLookupCluster(SharedLowRate, MessageLookupCluster):
    """Messages are looked up by key, position and time."""
