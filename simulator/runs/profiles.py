"""Profiles: the length and number of runs, and the faults that their seeds may draw."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.faults.damage_at_rest import DAMAGE_KINDS
from simulator.faults.kinds import ALL_KINDS, BROKER_FAULTS, DEFAULT_KINDS, NODE_FAULTS
from simulator.faults.membership import MEMBER_KINDS
from simulator.faults.node_faults import ATTACKER
from simulator.faults.raft_sequences import RAFT_SEQUENCE_KINDS, SEQUENCE_KINDS
from simulator.worlds.registry import (
    ACCOUNTS,
    ASKING,
    BROKERS,
    BURSTS,
    CALM,
    FOLLOWERS,
    GROUPS,
    LOOKUPS,
    NODES,
    POP,
    PUSHING,
    RETENTION,
    STALE_ROUTES,
    TRANSACTIONS,
    WAITING,
    WORLDS,
    calm,
    for_long_runs,
)


@dataclass(frozen=True, slots=True)
class Profile:
    """``kinds`` are the faults that may exist (``faults/kinds.py``), none for those that a seed
    draws by default.

    ``minutes`` is simulated time with faults. ``seeds`` are those that run by default. ``worlds``
    are used in turn, seed by seed. ``nodes`` is the size of a group unless the command line says
    otherwise. One seed in ``five_every`` has five (0: none has). A ``thorough`` profile also fails
    if its seeds missed an expected situation (``runs/expected_coverage.py``).
    """

    name: str
    worlds: tuple[str, ...] = (NODES, BROKERS)
    kinds: tuple[str, ...] = ()
    minutes: float = 1 / 3
    seeds: tuple[int, int] = (1, 100)
    thorough: bool = False
    nodes: int = 3
    five_every: int = 0

    def __post_init__(self) -> None:
        """Raises :class:`ValueError` for a kind that does not exist."""
        unknown = {*self.kinds}.difference(NODE_FAULTS, BROKER_FAULTS)
        if unknown:
            raise ValueError(f"profile {self.name}: no such faults: {', '.join(sorted(unknown))}")

    def kinds_of(self, seed: int) -> tuple[str, ...]:
        """The kinds for the world of a seed: bare nodes have no clients and no clocks."""
        known = NODE_FAULTS if self.world(seed) == NODES else BROKER_FAULTS
        return tuple(kind for kind in self.kinds if kind in known)

    def nodes_of(self, seed: int) -> int:
        """The size of a group of that seed. With three voters a majority is all but one, and some
        wrong rules pass."""
        return (
            5 if self.five_every and seed % self.five_every == self.five_every - 1 else self.nodes
        )

    def world(self, seed: int) -> str:
        """The name of the world of a seed."""
        return self.worlds[seed % len(self.worlds)]


DISK_KINDS = (
    "crash within a call",
    "power loss",
    "power loss of all",
    "power loss within a call",
    "disk error",
    "full disk",
    "slow disk",
    "expiry",
    "sync error",
    "read error",
    "disk wiped",
    *DAMAGE_KINDS,
)
NETWORK_KINDS = (
    "pause",
    "partition",
    "partial partition",
    "one-way link",
    "loss",
    "duplication",
    "reordering",
    "bits flipped on a link",
    "delay",
    "flapping link",
    "client cut off",
    "client pause",
)

MEMBER_PROFILE_KINDS = (
    *MEMBER_KINDS,
    "crash",
    "power loss",
    "stop",
    "pause",
    "partition",
    "one-way link",
    "loss",
    "delay",
    "slow disk",
    *SEQUENCE_KINDS,
    *RAFT_SEQUENCE_KINDS,
)

DAMAGE_PROFILE_KINDS = (*DAMAGE_KINDS, "crash", "power loss", "stop", "partition")

NIGHTLY_WORLDS = (
    NODES,
    for_long_runs(BROKERS),
    NODES,
    for_long_runs(calm(WAITING)),
    for_long_runs(BURSTS),
    for_long_runs(calm(TRANSACTIONS)),
    for_long_runs(calm(FOLLOWERS)),
    for_long_runs(calm(ASKING)),
    for_long_runs(calm(PUSHING)),
    for_long_runs(calm(LOOKUPS)),
    for_long_runs(calm(GROUPS)),
    for_long_runs(calm(STALE_ROUTES)),
    for_long_runs(calm(POP)),
    for_long_runs(ACCOUNTS),
    for_long_runs(calm(RETENTION)),
)

_MIXED = (
    Profile("quick", minutes=0.1),
    Profile(
        "default",
        (
            calm(PUSHING),
            CALM,
            calm(WAITING),
            calm(TRANSACTIONS),
            calm(LOOKUPS),
            calm(ASKING),
            calm(FOLLOWERS),
        ),
        DEFAULT_KINDS,
        five_every=8,  # and not 7: each of the seven worlds has five at times
    ),
    Profile("disk", kinds=DISK_KINDS),
    Profile("network", kinds=NETWORK_KINDS),
    Profile("membership", kinds=MEMBER_PROFILE_KINDS, seeds=(1, 200)),
    Profile("voters", (NODES,), MEMBER_PROFILE_KINDS, seeds=(1, 200), nodes=5),
    Profile("damage", (BROKERS,), DAMAGE_PROFILE_KINDS),
    Profile("attacker", kinds=(ATTACKER, "crash", "power loss", "partition", "loss", "pause")),
    Profile(
        "nightly",
        NIGHTLY_WORLDS,
        ALL_KINDS,
        minutes=1.0,
        seeds=(1, 5000),
        thorough=True,
    ),
)

PROFILES = {profile.name: profile for profile in _MIXED} | {
    world: Profile(world, (world,)) for world in WORLDS
}
"""By name. Each world is a profile of its own, with the faults that it draws by default."""
