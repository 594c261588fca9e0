"""All kinds of damage, in tables by what they are of."""

from __future__ import annotations

from collections.abc import Mapping

from tests.damage.checkpointplanting import CHECKPOINT_PLANTERS
from tests.damage.derivedplanting import DERIVED_PLANTERS
from tests.damage.planted import Planter
from tests.damage.planting import LOG_PLANTERS
from tests.damage.severalplanting import SEVERAL_PLANTERS
from tests.damage.slotplanting import SLOT_PLANTERS
from tests.damage.stateplanting import STATE_PLANTERS
from tests.damage.strayplanting import STRAY_PLANTERS

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
