"""Audits the same damages with Spark. It must find what the check of one process finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from simulator.engine.disk import SimulatedFileSystem
from spark.audit.audit import run_audit
from store.io.os_filesystem import OsFileSystem
from store.verify import Finding, verify_replicas
from tests.damage.campaign import Tally, difference, judge
from tests.damage.damage_kinds import PLANTERS
from tests.damage.planted_damage import plant
from tests.damage.replica_groups import Group, build_group

RANGE_BYTES = 9000


def damaged_in_spark(
    session: SparkSession, root: Path, seed: int, tally: Tally, what: str | None = None
) -> None:
    """Plants one damage, in real directories under ``root``, and judges the findings of Spark."""
    rng = Random(f"damaged in Spark {seed}")
    group = build_group(rng)
    planted = plant(group, rng, what, planters=PLANTERS)
    judge(seed, planted, audit(session, root, group), tally)


def undamaged_in_spark(session: SparkSession, root: Path, seed: int, tally: Tally) -> None:
    """Audits a whole group."""
    group = build_group(Random(f"undamaged {seed}"))
    judge(seed, None, audit(session, root, group), tally)


def audit(session: SparkSession, root: Path, group: Group) -> tuple[list[Finding], str | None]:
    """The findings of Spark, with paths as in the simulated disk, and the differences from `dledger
    verify`."""
    directories = []
    for directory in group.directories:
        directories.append(f"{root}{directory}")
        copy_out(group.fs, directory, Path(directories[-1]))
    found = [one.finding for one in run_audit(session, directories, RANGE_BYTES).findings]
    alone = verify_replicas(OsFileSystem(), directories, range_bytes=RANGE_BYTES).findings
    return [strip(one, str(root)) for one in found], difference(alone, found)


def strip(finding: Finding, root: str) -> Finding:
    return replace(
        finding, replica=finding.replica.removeprefix(root), path=finding.path.removeprefix(root)
    )


def copy_out(fs: SimulatedFileSystem, source: str, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in fs.list_directory(source):
        path = f"{source}/{name}"
        if path in fs.files():
            (target / name).write_bytes(fs.visible_bytes(path))
        else:
            copy_out(fs, path, target / name)
