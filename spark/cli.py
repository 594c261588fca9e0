"""``python -m spark audit``: exit codes as those of ``dledger verify``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spark.bench.result_table import table_lines
from spark.errors import ReplicaError, SparkSideError
from spark.package import write_package

if TYPE_CHECKING:
    from spark.audit.audit import Audit

EXIT_UNUSABLE = 2
EXAMPLES = """\
examples:
  python -m spark package dledger.zip
  python -m spark audit snap/broker-a/n0 snap/broker-a/n1 snap/broker-a/n2 --out audit
  spark-submit --py-files dledger.zip spark/__main__.py audit snap/broker-a --out audit

exit code: 0 consistent; 1 something is wrong; 2 nothing wrong was found, but something could not be
read, or the audit could not be made
"""


def main(arguments: Sequence[str] | None = None) -> int:
    args = make_parser().parse_args(arguments)
    try:
        return COMMANDS[args.command](args)
    except (SparkSideError, OSError) as error:
        print(f"spark {args.command}: {error}", file=sys.stderr)
        return EXIT_UNUSABLE


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m spark", description="dledger with Spark")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    audit = commands.add_parser(
        "audit",
        help="prove that the replicas of a group agree",
        description="Checks every byte of the replicas, and compares them.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    audit.add_argument(
        "directories",
        metavar="DIR",
        nargs="+",
        help="a replica's snapshot or stopped data directory, or one that holds several; or a URL",
    )
    audit.add_argument(
        "--out",
        metavar="DIR",
        help="gets findings.parquet, ranges.parquet, report.html and, last, summary.json",
    )
    audit.add_argument("--master", metavar="URL", help="Spark's master (default: local[*])")
    audit.add_argument(
        "--acknowledged",
        metavar="FILE",
        help="what dledger produce --json (or consume --json) printed, or message ids, one a line; "
        "- for standard input: each message must be in the log",
    )
    audit.add_argument(
        "--duplicates",
        action="store_true",
        help="also tell messages of a topic that are there twice, by their unique key",
    )
    audit.add_argument(
        "--range-mib",
        type=positive,
        metavar="N",
        help="MiB of each replica's log that one task checks (default: by the log and the cores, "
        "at most 1024)",
    )
    audit.add_argument("--json", action="store_true", help="print the summary as one JSON document")
    package = commands.add_parser(
        "package",
        help="make the archive that spark-submit --py-files takes",
        description="Puts the project into an archive for the workers of a cluster. They also "
        "need the wheels crc32c, isal, msgpack, numpy and pyarrow.",
        epilog="example:\n  python -m spark package dledger.zip\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    package.add_argument("path", metavar="OUT.zip", help="the archive; an existing one is replaced")
    bench = commands.add_parser(
        "bench",
        help="measure the audit against plain processes, on data made for it",
        description="Measures the audit with local[2] against two plain processes, and one process "
        "against reading alone: of messages of one kind, and of mixed ones.",
        epilog="example:\n  python -m spark bench --gib 0.25 1 4 --size 1024\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bench.add_argument(
        "--gib", type=share, nargs="+", default=[0.25], metavar="N", help="log of each replica, GiB"
    )
    bench.add_argument(
        "--size",
        type=positive,
        default=1024,
        metavar="N",
        help="bytes of a body of uniform messages (default: 1024)",
    )
    bench.add_argument(
        "--range-mib", type=positive, metavar="N", help="of a task (default: as the audit does it)"
    )
    bench.add_argument(
        "--repeats",
        type=positive,
        default=3,
        metavar="N",
        help="runs, the best counts (default: 3)",
    )
    bench.add_argument(
        "--linked", action="store_true", help="let the replicas share the files of the log"
    )
    bench.add_argument("--dir", metavar="DIR", help="where the data go meanwhile")
    bench.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1 << 20:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of GiB")
    return value


def positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 up")
    return int(text)


def range_bytes_of(args: argparse.Namespace) -> int | None:
    """The size of a task, if the command line gives one."""
    return None if args.range_mib is None else args.range_mib << 20


def run_package(args: argparse.Namespace) -> int:
    count = write_package(args.path)
    print(f"{args.path}: {count} files")
    return 0


def run_bench(args: argparse.Namespace) -> int:
    from spark.bench.benchmark import run_benchmark  # noqa: PLC0415 - PySpark is an extra

    found = run_benchmark(
        args.gib,
        args.size,
        range_bytes_of(args),
        args.dir,
        repeats=args.repeats,
        linked=args.linked,
    )
    if args.json:
        print(json.dumps(found))
        return 0
    for line in table_lines(found):
        print(line)
    return 0


def run(args: argparse.Namespace) -> int:
    try:
        from spark.audit.acknowledged_messages import (  # noqa: PLC0415 - PySpark is an extra
            check_acknowledged,
            read_acknowledged,
        )
        from spark.audit.audit import run_audit  # noqa: PLC0415 - PySpark is an extra
        from spark.audit.duplicate_messages import find_duplicates  # noqa: PLC0415 - PySpark is an extra
        from spark.audit.targets import find_targets  # noqa: PLC0415 - PySpark is an extra
        from spark.session import open_session  # noqa: PLC0415 - PySpark is an extra
        from store.verify.files.unread_files import exit_code  # noqa: PLC0415 - as the others
    except ImportError as error:
        raise ReplicaError(
            f"{error}: pip install 'dledger[spark]' brings what is missing"
        ) from None
    directories = find_targets(args.directories)
    listed = read_acknowledged(args.acknowledged) if args.acknowledged else []
    if args.out is not None:
        os.makedirs(args.out, exist_ok=True)
    with open_session(args.master, progress=sys.stderr.isatty()) as session:
        audit = run_audit(session, directories, range_bytes_of(args))
        if args.duplicates:
            audit.findings += find_duplicates(session, directories[0], audit.groups, audit.findings)
    audit.findings += check_acknowledged(directories[0], audit.groups, listed)
    summary = write(args.out, directories[0], audit)
    if args.json:
        print(json.dumps(summary))
    else:
        show(audit, summary)
    return exit_code([told.finding for told in audit.findings])


def write(out: str | None, root: str, audit: Audit) -> dict[str, Any]:
    """Writes the files of the audit; returns the summary."""
    from spark.remote_file_system import open_file_system  # noqa: PLC0415 - PySpark is an extra
    from spark.report.html_report import render  # noqa: PLC0415 - PySpark is an extra
    from spark.report.result_files import (  # noqa: PLC0415 - PySpark is an extra
        finding_rows,
        range_rows,
        summarize,
        write_summary,
        write_tables,
    )

    summary = summarize(audit)
    if out is not None:
        findings = finding_rows(open_file_system(root)[0], audit)
        write_tables(out, findings, range_rows(audit))
        with open(f"{out}/report.html", "w", encoding="utf-8") as file:
            file.write(render(audit, summary, findings))
        write_summary(out, summary)
    return summary


def show(audit: Audit, summary: dict[str, Any]) -> None:
    for told in audit.findings:
        print(told)
    for group in summary["groups"]:
        for replica in group["replicas"]:
            count = replica["findings"]
            print(
                f"{replica['replica']}: entries {replica['first_index']} to "
                f"{replica['commit_index']}: {f'{count} finding(s)' if count else 'nothing found'}"
            )
    seconds = max(summary["scan_seconds"], 1e-9)
    print(
        f"{summary['bytes_read']:,} bytes in {seconds:.1f} s: "
        f"{'consistent' if summary['consistent'] else 'NOT consistent'}"
    )


COMMANDS = {"audit": run, "bench": run_bench, "package": run_package}
