"""``python -m spark``: audit, benchmark and package. Exit codes are those of ``dledger verify``."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from spark.bench.result_table import table_lines
from spark.errors import ReplicaError, SparkSideError
from spark.package import write_package
from store.counted import counted
from store.quoting import shortened
from store.text_numbers import decimal_number, whole_number

if TYPE_CHECKING:
    from spark.audit.audit import Audit

EXIT_UNUSABLE = 2
EXIT_CODES = """\
exit code: 0 consistent; 1 something is wrong; 2 nothing wrong was found, but something could not be
read, or the audit could not be made
"""

PATH = click.Path()
"""A path, or a URL, as text."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code. A failure is one line on stderr.

    An error that nobody expects has its traceback there: code 1, with which Python would end, means
    that something is wrong with a replica.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    name = "python -m spark"
    try:
        with spark.make_context(name, given) as context:
            return spark.invoke(context) or 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
    except click.UsageError as error:
        where = name if error.ctx is None else error.ctx.command_path
        print(f"{where}: {shortened(error.format_message())}", file=sys.stderr)
    except (SparkSideError, OSError) as error:
        print(f"spark {given[0]}: {error}", file=sys.stderr)
    except Exception as error:  # see the docstring
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise  # interrupted during an import
        traceback.print_exc()
    return EXIT_UNUSABLE


def gibibytes(text: str | float) -> float:
    """The type of an option in GiB. Its default is a number already. Raises ``ValueError``."""
    value = decimal_number(str(text))
    if not 0 < value < 1 << 20:
        raise ValueError(f"{text!r} is not a number of GiB")
    return value


def count_up_to(most: int) -> Callable[[str | int], int]:
    """The type of an option that is a number from 1 to ``most``. A default is a number already."""

    def convert(text: str | int) -> int:
        try:
            number = whole_number(str(text))
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
        if not 1 <= number <= most:
            raise click.BadParameter(f"{number} is not in the range 1<=x<={most}")
        return number

    return convert


range_option = click.option(
    "--range-mib",
    type=count_up_to(1 << 20),
    metavar="N",
    help="MiB of each replica's log that one task checks (default: by the log and the cores, at "
    "most 1024).",
)


def range_bytes_of(range_mib: int | None) -> int | None:
    """The bytes of log in a task, if the command line says it."""
    return None if range_mib is None else range_mib << 20


@click.group(name="spark")
def spark() -> None:
    """The audit of replicas with Spark."""


@spark.command()
@click.argument(
    "path", metavar="OUT.zip", type=PATH, help="The archive; an existing one is replaced."
)
def package(path: str) -> None:
    """Make the archive that spark-submit --py-files takes.

    The workers of a cluster also need the wheels crc32c, isal, msgpack, numpy and pyarrow, and
    where the audit is started, click.

    \b
    Example:
      python -m spark package dledger.zip
    """
    count = write_package(path)
    print(f"{path}: {count} files")


@spark.command()
@click.option(
    "--gib",
    type=gibibytes,
    multiple=True,
    default=(0.25,),
    metavar="N",
    help="Log of each replica, GiB (default: 0.25).",
)
@click.argument("more", nargs=-1, type=gibibytes, metavar="[N]...", help="More sizes, as --gib.")
@click.option(
    "--size",
    type=count_up_to(1 << 22),
    default=1024,
    metavar="N",
    help="Bytes of a body of uniform messages (default: 1024).",
)
@range_option
@click.option(
    "--repeats",
    type=count_up_to(1 << 20),
    default=3,
    metavar="N",
    help="Runs, the best counts (default: 3).",
)
@click.option("--linked", is_flag=True, help="Let the replicas share the files of the log.")
@click.option("--dir", "directory", metavar="DIR", type=PATH, help="Where the data go meanwhile.")
@json_option
def bench(
    *,
    gib: tuple[float, ...],
    more: tuple[float, ...],
    size: int,
    range_mib: int | None,
    repeats: int,
    linked: bool,
    directory: str | None,
    as_json: bool,
) -> None:
    """Measure the audit against plain processes, on data made for it.

    It runs with local[2] against two plain processes, and one process against reading alone: of
    messages of one kind, and of mixed ones.

    \b
    Example:
      python -m spark bench --gib 0.25 1 4 --size 1024
    """
    from spark.bench.benchmark import run_benchmark  # noqa: PLC0415 - PySpark is an extra

    range_bytes = range_bytes_of(range_mib)
    found = run_benchmark(
        (*gib, *more), size, range_bytes, directory, repeats=repeats, linked=linked
    )
    if as_json:
        print(json.dumps(found))
        return
    for line in table_lines(found):
        print(line)


@spark.command(epilog=f"\b\n{EXIT_CODES}")
@click.argument(
    "directories",
    metavar="DIR...",
    type=PATH,
    nargs=-1,
    required=True,
    help="A replica's snapshot or stopped data directory, or one that holds several; or a URL.",
)
@click.option(
    "--out",
    metavar="DIR",
    type=PATH,
    help="Gets findings.parquet, ranges.parquet, report.html and, last, summary.json.",
)
@click.option("--master", metavar="URL", help="Spark's master (default: local[*]).")
@click.option(
    "--acknowledged",
    metavar="FILE",
    type=PATH,
    help="What dledger produce --json (or consume --json) printed, or message ids, one a line; "
    "- for standard input: each message must be in the log.",
)
@click.option(
    "--duplicates",
    is_flag=True,
    help="Also tell messages of a topic that are there twice, by their unique key.",
)
@range_option
@json_option
def audit(
    *,
    directories: tuple[str, ...],
    out: str | None,
    master: str | None,
    acknowledged: str | None,
    duplicates: bool,
    range_mib: int | None,
    as_json: bool,
) -> int:
    """Prove that the replicas of a group agree.

    Checks every byte of the replicas, and compares them.

    \b
    Examples:
      python -m spark package dledger.zip
      python -m spark audit snap/broker-a/n0 snap/broker-a/n1 snap/broker-a/n2 --out audit
      spark-submit --py-files dledger.zip spark/__main__.py audit snap/broker-a --out audit
    """
    try:
        from spark.audit.acknowledged_messages import (  # noqa: PLC0415 - PySpark is an extra
            check_acknowledged,
            read_acknowledged,
        )
        from spark.audit.audit import run_audit  # noqa: PLC0415 - PySpark is an extra
        from spark.audit.duplicate_search_job import find_duplicates  # noqa: PLC0415 - PySpark is an extra
        from spark.audit.targets import find_targets  # noqa: PLC0415 - PySpark is an extra
        from spark.report.result_files import (  # noqa: PLC0415 - PySpark is an extra
            begin_results,
            summarize,
        )
        from spark.session import open_session  # noqa: PLC0415 - PySpark is an extra
        from store.verify.files.unread_files import exit_code  # noqa: PLC0415 - as the others
    except ImportError as error:
        raise ReplicaError(
            f"{error}: pip install 'dledger[spark]' brings what is missing"
        ) from None
    targets = find_targets(directories)
    listed = read_acknowledged(acknowledged) if acknowledged else []
    if out is not None:
        begin_results(out)
    found: Audit | None = None
    try:
        with open_session(master, progress=sys.stderr.isatty()) as session:
            found = run_audit(session, targets, range_bytes_of(range_mib))
            if duplicates:
                found.findings += find_duplicates(session, targets[0], found.groups, found.findings)
    except (SparkSideError, OSError) as error:
        if found is None:
            raise
        found.unfinished.append(str(error))
    with unless_failed(found):
        found.findings += check_acknowledged(targets[0], found.groups, listed)
    if out is not None:
        with unless_failed(found):
            write(out, targets[0], found)
    summary = summarize(found)
    if as_json:
        print(json.dumps(summary))
    else:
        show(found, summary)
    for failure in found.unfinished:
        print(f"spark audit: {failure}", file=sys.stderr)
    code = exit_code([each.finding for each in found.findings])
    return code or (EXIT_UNUSABLE if found.unfinished else code)


@contextmanager
def unless_failed(found: Audit) -> Iterator[None]:
    """Notes a failure after the audit, so that what the audit has found is told."""
    try:
        yield
    except (SparkSideError, OSError) as error:
        found.unfinished.append(str(error))


def write(out: str, root: str, audit: Audit) -> None:
    """Writes the files of the audit. No summary if something is unfinished: readers of a summary
    take the number of its findings for all that there are."""
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
    findings = finding_rows(open_file_system(root)[0], audit)
    write_tables(out, findings, range_rows(audit))
    with open(f"{out}/report.html", "w", encoding="utf-8") as file:
        file.write(render(audit, summary, findings))
    if not audit.unfinished:
        write_summary(out, summary)


def show(audit: Audit, summary: dict[str, Any]) -> None:
    for finding in audit.findings:
        print(finding)
    for group in summary["groups"]:
        for replica in group["replicas"]:
            count = replica["findings"]
            found = counted(count, "finding") if count else "nothing found"
            print(
                f"{replica['replica']}: entries {replica['first_index']} to "
                f"{replica['commit_index']}: {found}"
            )
    seconds = max(summary["scan_seconds"], 1e-9)
    print(
        f"{summary['bytes_read']:,} bytes in {seconds:.1f} s: "
        f"{'consistent' if summary['consistent'] else 'NOT consistent'}"
    )
