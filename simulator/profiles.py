"""Profiles: how long runs are, how many, and among which faults their seeds choose."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """``kinds`` are the faults that exist at all (``faults.KINDS``), none given for every kind.

    ``minutes`` is simulated time with faults; ``seeds`` what is run where nothing else is asked.
    """

    name: str
    told: str
    minutes: float
    seeds: tuple[int, int]
    kinds: tuple[str, ...] = ()


DISK_KINDS = (
    "crash within a call",
    "power loss",
    "power loss of all",
    "power loss within a call",
    "disk error",
    "full disk",
    "slow disk",
)
NETWORK_KINDS = (
    "pause",
    "partition",
    "partial partition",
    "one-way link",
    "loss",
    "duplication",
    "reordering",
    "delay",
)

PROFILES = {
    profile.name: profile
    for profile in (
        Profile("quick", "a few hundred short runs: what make test does", 0.1, (1, 200)),
        Profile("default", "runs of twenty seconds with every fault", 1 / 3, (1, 100)),
        Profile("disk", "power, disks and crashes within a call", 1 / 3, (1, 100), DISK_KINDS),
        Profile("network", "pauses and links", 1 / 3, (1, 100), NETWORK_KINDS),
        Profile("nightly", "thousands of runs of a minute", 1.0, (1, 5000)),
    )
}
