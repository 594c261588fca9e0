"""The worlds of runs, and the arguments of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from broker.client.route.route_cache import POLL_SECONDS
from broker.security.cluster_secrets import ClusterSecrets
from simulator.faults.injector import FaultPlan
from simulator.faults.schedule import Action
from simulator.hosts.broker_host import BrokerHost, BrokerSettings
from simulator.workload.account_admin import TOPICS as ACCOUNT_TOPICS
from simulator.workload.account_requests import ADMIN, CLUSTER_SECRET
from simulator.workload.two_groups import TwoGroupsHistory
from simulator.worlds.accounts import Accounts
from simulator.worlds.bare_nodes import BARE_NODES, RaftProposals
from simulator.worlds.brokers import WHOLE_BROKERS
from simulator.worlds.cluster import Cluster, World
from simulator.worlds.follower_reads import FollowerReads
from simulator.worlds.message_lookup import MessageLookup
from simulator.worlds.messages import TOPICS, Messages
from simulator.worlds.name_service import NameService
from simulator.worlds.outcome import Outcome
from simulator.worlds.pop_groups import PopGroups
from simulator.worlds.push_consumers import PushConsumers
from simulator.worlds.request_reply import RequestReply
from simulator.worlds.runner import leaving_nothing, play
from simulator.worlds.scheduled_messages import ScheduledMessages
from simulator.worlds.settings import BURSTS as BURSTS_SETTINGS
from simulator.worlds.settings import BUSY, HEALING_SECONDS, SHARED_CALM, WorldSettings
from simulator.worlds.settings import CALM as CALM_SETTINGS
from simulator.worlds.stale_routes import StaleRoutes
from simulator.worlds.transactions import Transactions
from simulator.worlds.two_broker_groups import SecondGroup
from simulator.worlds.workload import Workload

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
STALE_ROUTES = "stale-routes"
POP = "pop"
RETENTION = "retention"
ACCOUNTS = "accounts"


def calm(name: str) -> str:
    """The name of that world with fewer requests."""
    return f"{CALM}-{name}"


def for_long_runs(name: str) -> str:
    """The name of that world with :meth:`WorldSettings.for_long_runs`."""
    return f"long-{name}"


def _names(cluster: Cluster[BrokerHost]) -> NameService:
    return NameService(cluster, TOPICS)


def _names_of_account_topics(cluster: Cluster[BrokerHost]) -> NameService:
    return NameService(cluster, ACCOUNT_TOPICS)


def _messages_of_both(cluster: Cluster[BrokerHost]) -> Messages:
    return Messages(cluster, TwoGroupsHistory)


def _brokers(
    *added: Callable[[Cluster[BrokerHost]], Workload], settings: WorldSettings = BUSY
) -> World[BrokerHost]:
    return World(WHOLE_BROKERS, (_names, Messages, *added), settings)


def _retaining(settings: WorldSettings) -> WorldSettings:
    return replace(settings, broker=BrokerSettings(retains=True))


def _checking(settings: WorldSettings) -> WorldSettings:
    """Check-backs come after a second, and then every second."""
    broker = BrokerSettings(
        retains=True, transaction_timeout_ms=1_000, transaction_check_interval_ms=1_000
    )
    return replace(settings, broker=broker)


def _at_followers(settings: WorldSettings) -> WorldSettings:
    return replace(settings, reads_at_followers=True)


def _trimming(settings: WorldSettings) -> WorldSettings:
    return replace(settings, broker=BrokerSettings(trimmed_topic=TOPICS[1]))


def _two_groups(settings: WorldSettings) -> World[BrokerHost]:
    """After ``POLL_SECONDS`` a client asks again if a group was not registered when it asked for a
    route."""
    healing_seconds = HEALING_SECONDS + POLL_SECONDS
    return World(
        WHOLE_BROKERS,
        (_names, _messages_of_both, SecondGroup),
        replace(settings, queues_per_topic=2, healing_seconds=healing_seconds),
    )


_WORLDS: Mapping[str, World[Any]] = {
    NODES: World(BARE_NODES, (RaftProposals,)),
    BROKERS: _brokers(),
    CALM: _brokers(settings=CALM_SETTINGS),
    BURSTS: _brokers(settings=BURSTS_SETTINGS),
    WAITING: _brokers(ScheduledMessages, settings=_retaining(BUSY)),
    calm(WAITING): _brokers(ScheduledMessages, settings=_retaining(SHARED_CALM)),
    TRANSACTIONS: _brokers(Transactions, settings=_checking(BUSY)),
    calm(TRANSACTIONS): _brokers(Transactions, settings=_checking(SHARED_CALM)),
    FOLLOWERS: _brokers(FollowerReads, settings=_at_followers(BUSY)),
    calm(FOLLOWERS): _brokers(FollowerReads, settings=_at_followers(SHARED_CALM)),
    ASKING: _brokers(RequestReply),
    calm(ASKING): _brokers(RequestReply, settings=SHARED_CALM),
    PUSHING: _brokers(PushConsumers),
    calm(PUSHING): _brokers(PushConsumers, settings=SHARED_CALM),
    LOOKUPS: _brokers(MessageLookup),
    calm(LOOKUPS): _brokers(MessageLookup, settings=SHARED_CALM),
    STALE_ROUTES: _brokers(StaleRoutes),
    calm(STALE_ROUTES): _brokers(StaleRoutes, settings=SHARED_CALM),
    POP: _brokers(PopGroups),
    calm(POP): _brokers(PopGroups, settings=SHARED_CALM),
    RETENTION: _brokers(settings=_trimming(BUSY)),
    calm(RETENTION): _brokers(settings=_trimming(CALM_SETTINGS)),
    ACCOUNTS: World(
        WHOLE_BROKERS,
        (_names_of_account_topics, Accounts),
        replace(BUSY, broker=BrokerSettings(secrets=ClusterSecrets((CLUSTER_SECRET,), ADMIN))),
    ),
    GROUPS: _two_groups(BUSY),
    calm(GROUPS): _two_groups(CALM_SETTINGS),
}


WORLDS: Mapping[str, World[Any]] = {
    **_WORLDS,
    **{
        for_long_runs(name): replace(world, settings=world.settings.for_long_runs())
        for name, world in _WORLDS.items()
        if name != NODES
    },
}
"""By name; ``docs/simulator.md`` has a table of them. Each has its own seeds: a change of one
leaves those of the others alone."""


@dataclass(frozen=True, slots=True)
class Run:
    """See :class:`~simulator.worlds.cluster.Cluster` for the meaning of each."""

    seed: int
    world: str = NODES
    nodes: int = 3
    seconds: float = 20.0
    plan: FaultPlan | None = None
    kinds: Sequence[str] = ()
    schedule: Sequence[Action] | None = None
    client_seconds: float | None = None

    def cluster(self, show: Callable[[str], None] | None = None) -> Cluster[Any]:
        """The cluster, before anything has happened in it."""
        return Cluster(
            WORLDS[self.world],
            self.seed,
            nodes=self.nodes,
            plan=self.plan,
            kinds=self.kinds,
            schedule=self.schedule,
            show=show,
        )

    def play(self, show: Callable[[str], None] | None = None) -> Outcome:
        """Runs it to its end. ``show`` gets a line for each event."""
        with leaving_nothing():
            return play(
                self.cluster(show), lambda cluster: cluster.run(self.seconds, self.client_seconds)
            )
