"""The same damages audited by Spark: what it finds is what the check of one process finds."""

from __future__ import annotations

from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from simulator.disk import SimulatedFileSystem
from spark.audit import run_audit
from store.osfiles import OsFileSystem
from store.verify import Finding, verify_replicas
from tests.damage.campaign import Tally
from tests.damage.groups import Group, build_group
from tests.damage.planting import plant

RANGE_BYTES = 9000


def damaged_in_spark(session: SparkSession, root: Path, seed: int, tally: Tally) -> None:
    """Plants one damage, in real directories under ``root``, and sees what Spark tells."""
    rng = Random(f"damaged {seed}")
    group = build_group(rng)
    planted = plant(group, rng)
    tally.planted[planted.what] += 1
    found, difference = audit(session, root, group)
    wrong = planted.explain(found) or difference
    if wrong is None:
        tally.found[planted.what] += 1
        return
    told = "\n    ".join(map(str, found)) or "nothing"
    tally.failures.append(f"seed {seed}: {planted.what}: {wrong}; told was:\n    {told}")


def undamaged_in_spark(session: SparkSession, root: Path, seed: int, tally: Tally) -> None:
    """Audits a whole group."""
    tally.planted["nothing"] += 1
    found, difference = audit(session, root, build_group(Random(f"undamaged {seed}")))
    if not found and difference is None:
        tally.found["nothing"] += 1
        return
    told = "\n    ".join(map(str, found))
    tally.failures.append(f"seed {seed} (undamaged): {difference or told}")


def audit(session: SparkSession, root: Path, group: Group) -> tuple[list[Finding], str | None]:
    """What Spark tells, with paths as in the simulated disk, and how `dledger verify` differs."""
    directories = []
    for directory in group.directories:
        directories.append(f"{root}{directory}")
        copy_out(group.fs, directory, Path(directories[-1]))
    told = run_audit(session, directories, RANGE_BYTES).told
    alone = verify_replicas(OsFileSystem(), directories, range_bytes=RANGE_BYTES).findings
    shown, expected = sorted(str(one.finding) for one in told), sorted(map(str, alone))
    difference = None if shown == expected else f"verify differs: {expected} is not {shown}"
    found = [strip(one.finding, str(root)) for one in told]
    return found, difference


def strip(finding: Finding, root: str) -> Finding:
    return Finding(
        finding.kind,
        finding.replica.removeprefix(root),
        finding.index_first,
        finding.index_last,
        finding.path.removeprefix(root),
        finding.position,
        finding.expected,
        finding.found,
        finding.advice,
        finding.majority,
    )


def copy_out(fs: SimulatedFileSystem, source: str, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in fs.list_directory(source):
        path = f"{source}/{name}"
        if path in fs.files():
            (target / name).write_bytes(fs.visible_bytes(path))
        else:
            copy_out(fs, path, target / name)
