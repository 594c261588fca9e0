"""The worlds that a run can have, and all that decides a run.

``nodes``: bare Raft nodes with their stores, whose client proposes to the nodes themselves. Fast,
and all of its chance goes into elections, replication and disks. ``brokers``: whole brokers with a
NameServer, and the shipped producers and consumers. ``calm``: the same, with fewer entries in a
second. ``waiting``: the same as ``brokers``, with messages that are not to be delivered at once.
``transactions``: likewise, with clients that have transactions. ``followers``: likewise, with
clients that read at any broker. ``asking``: likewise, with requests that are answered, and
consumers that select by SQL92 what they answer. ``bursts``: likewise, with clients that do much at
the same instant. ``pushing``: likewise, with consumers like RocketMQ's Java client, which lock,
filter, send back, and are moved back. ``lookups``: likewise, with a client that looks messages up
by key, position and time. ``groups``: likewise, with two broker groups. Those
that begin with ``calm-`` have calm clients beside the ones that they add.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulator.faults.injector import FaultPlan
from simulator.faults.schedule import Action
from simulator.worlds.broker_cluster import BrokerCluster
from simulator.worlds.bursts import BurstsCluster
from simulator.worlds.follower_reads import FollowerReadsCluster
from simulator.worlds.low_rate import (
    LowRateCluster,
    LowRateFollowerReadsCluster,
    LowRateMessageLookupCluster,
    LowRatePushConsumersCluster,
    LowRateRequestReplyCluster,
    LowRateScheduledMessagesCluster,
    LowRateTransactionalCluster,
)
from simulator.worlds.message_lookup import MessageLookupCluster
from simulator.worlds.outcome import Outcome
from simulator.worlds.push_consumers import PushConsumersCluster
from simulator.worlds.raft_cluster import Cluster
from simulator.worlds.request_reply import RequestReplyCluster
from simulator.worlds.runner import play
from simulator.worlds.scheduled_messages import ScheduledMessagesCluster
from simulator.worlds.transactions import TransactionalCluster
from simulator.worlds.two_broker_groups import TwoGroupsCluster

NODES = "nodes"
BROKERS = "brokers"
CALM = "calm"
WAITING = "waiting"
TRANSACTIONS = "transactions"
FOLLOWERS = "followers"
ASKING = "asking"
BURSTS = "bursts"
PUSHING = "pushing"
LOOKUPS = "lookups"
GROUPS = "groups"
CALM_WAITING = "calm-waiting"
CALM_TRANSACTIONS = "calm-transactions"
CALM_FOLLOWERS = "calm-followers"
CALM_ASKING = "calm-asking"
CALM_PUSHING = "calm-pushing"
CALM_LOOKUPS = "calm-lookups"
WORLDS: dict[str, type[Cluster]] = {
    NODES: Cluster,
    BROKERS: BrokerCluster,
    CALM: LowRateCluster,
    WAITING: ScheduledMessagesCluster,
    TRANSACTIONS: TransactionalCluster,
    FOLLOWERS: FollowerReadsCluster,
    ASKING: RequestReplyCluster,
    BURSTS: BurstsCluster,
    PUSHING: PushConsumersCluster,
    LOOKUPS: MessageLookupCluster,
    GROUPS: TwoGroupsCluster,
    CALM_WAITING: LowRateScheduledMessagesCluster,
    CALM_TRANSACTIONS: LowRateTransactionalCluster,
    CALM_FOLLOWERS: LowRateFollowerReadsCluster,
    CALM_ASKING: LowRateRequestReplyCluster,
    CALM_PUSHING: LowRatePushConsumersCluster,
    CALM_LOOKUPS: LowRateMessageLookupCluster,
}


@dataclass(frozen=True, slots=True)
class Run:
    """See :class:`~simulator.worlds.raft_cluster.Cluster` for the meaning of each."""

    seed: int
    world: str = NODES
    nodes: int = 3
    seconds: float = 20.0
    plan: FaultPlan | None = None
    kinds: Sequence[str] = ()
    schedule: Sequence[Action] | None = None
    client_seconds: float | None = None

    def play(self, show: Callable[[str], None] | None = None) -> Outcome:
        """To its end; ``show`` is told every event, a line each."""
        cluster = WORLDS[self.world](
            self.seed,
            nodes=self.nodes,
            plan=self.plan,
            kinds=self.kinds,
            schedule=self.schedule,
            show=show,
        )
        return play(cluster, lambda made: made.run(self.seconds, self.client_seconds))
