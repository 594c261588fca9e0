"""What Spark finds in damaged groups is what is wrong with them; a few here.

``python -m tests.damage --spark --count 40`` audits 40 damaged and 40 whole groups in one session.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.damage.campaign import Tally
from tests.damage.sparkaudit import damaged_in_spark, undamaged_in_spark


def test_damage_is_found_and_whole_groups_give_no_alarm(
    session: SparkSession, tmp_path: Path
) -> None:
    tally = Tally()
    for seed in range(3):
        damaged_in_spark(session, tmp_path / f"damaged{seed}", seed, tally)
    undamaged_in_spark(session, tmp_path / "whole", 1, tally)
    assert tally.failures == []
    assert tally.planted.total() == 4
