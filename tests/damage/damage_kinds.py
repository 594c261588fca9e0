"""All kinds of damage, in tables by the files that they concern."""

from __future__ import annotations

from collections.abc import Mapping

from tests.damage.checkpoint_damage import CHECKPOINT_PLANTERS
from tests.damage.derived_file_damage import DERIVED_PLANTERS
from tests.damage.log_damage import LOG_PLANTERS
from tests.damage.planted_damage import Planter
from tests.damage.several_replicas_damage import SEVERAL_PLANTERS
from tests.damage.state_damage import STATE_PLANTERS
from tests.damage.stray_file_damage import STRAY_PLANTERS
from tests.damage.two_slot_file_damage import SLOT_PLANTERS

KINDS: Mapping[str, Mapping[str, Planter]] = {
    "bytes": {**LOG_PLANTERS, **DERIVED_PLANTERS},
    "state": STATE_PLANTERS,
    "slots": SLOT_PLANTERS,
    "checkpoints": CHECKPOINT_PLANTERS,
    "several": SEVERAL_PLANTERS,
    "strays": STRAY_PLANTERS,
}
PLANTERS: Mapping[str, Planter] = {
    name: planter for table in KINDS.values() for name, planter in table.items()
}
