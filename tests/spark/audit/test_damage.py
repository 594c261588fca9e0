"""What Spark finds in damaged groups is what is wrong with them, and what `dledger verify` finds.

A few kinds, drawn anew; ``python -m tests.damage --spark --each --count 1`` audits all of them in
one session. Without Spark, ``tests/damage`` compares the same two checks on every kind.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from tests.damage.campaign import Tally
from tests.damage.damage_kinds import PLANTERS
from tests.damage.spark_audit import damaged_in_spark, undamaged_in_spark

SAMPLED = 3


def test_damage_is_found_and_whole_groups_give_no_alarm(
    session: SparkSession, tmp_path: Path
) -> None:
    rng = Random(int.from_bytes(os.urandom(4), "big"))
    for number, kind in enumerate(rng.sample(sorted(PLANTERS), SAMPLED)):
        tally, seed = Tally(), rng.randrange(1 << 20)
        damaged_in_spark(session, tmp_path / f"damaged{number}", seed, tally, kind)
        command = f"python -m tests.damage --spark --kind {kind} --seed {seed} --count 1"
        assert tally.failures == [], command
    tally = Tally()
    undamaged_in_spark(session, tmp_path / "whole", 1, tally)
    assert tally.failures == []
