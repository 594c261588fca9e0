"""Damage at rest: single faults that change what lies on a disk."""

from __future__ import annotations

from random import Random

from simulator.faults.derived_file_damage import CHECKPOINTS, KEYS, QUEUES, WAYS
from simulator.faults.injector import Fault, at_a_host


def _share(rng: Random) -> float:
    """A place in the log, as a share with few digits for the schedule."""
    return round(rng.random(), 3)


def _damage_to(part: str) -> Fault:
    """Damage to derived files of that part."""
    return at_a_host("damage-file", lambda _rng: part, lambda rng: rng.choice(WAYS), _share)


DAMAGE_KINDS: dict[str, Fault] = {
    "bit flip": at_a_host("flip-bit", _share, lambda rng: rng.randrange(8)),
    "file lost": at_a_host("lose-file", _share),
    "file cut short": at_a_host("cut-file", _share),
    "files swapped": at_a_host("swap-files", _share, _share),
    "misdirected write": at_a_host("misdirect-write", _share, _share),
    "unreadable sector": at_a_host("lose-sector", _share),
    "checkpoint damaged": _damage_to(CHECKPOINTS),
    "ConsumeQueue damaged": _damage_to(QUEUES),
    "key index damaged": _damage_to(KEYS),
    "entry index damaged": _damage_to("index"),
}
"""Within the bounds of ``faults/disk_damage.py``; a run has them only on request."""
