"""The results of the benchmark, as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

HEADINGS = (
    "messages  GiB a   ranges  by the clock, GB/s    of CPU time, GB/s  Spark CPU  shuffled worker",
    "          replica         plain  Spark  ratio   plain  Spark       per GiB*  of read     MiB",
)


def table_lines(found: dict[str, Any]) -> Iterator[str]:
    """Two tables: the check with two workers, and the CPU time of one process."""
    yield from HEADINGS
    for row in found["sizes"]:
        yield (
            f"{row['messages']:<8}  {row['gib']:<7g} {row['ranges']:>6}  "
            f"{row['plain_gb_per_second']:>5.2f}  {row['spark_gb_per_second']:>5.2f}  "
            f"{row['spark_to_plain']:>5.2f}   {row['plain_gb_per_cpu_second']:>5.2f}  "
            f"{row['spark_gb_per_cpu_second']:>5.2f}       {row['cpu_per_gib_to_first']:>8.2f}  "
            f"{row['shuffle_share']:>8.4%} {row['worker_peak_bytes'] >> 20:>6}"
        )
    yield "* against the first size; GB are bytes of log of all replicas"
    for messages, rates in found["marginal"].items():
        for name, unit in (("clock", "second"), ("CPU time", "cpu_second")) if rates else ():
            plain, spark = (rates[f"marginal_{one}_gb_per_{unit}"] for one in ("plain", "spark"))
            yield (
                f"{messages}, from the first to the last size, by {name}: plain {plain} GB/s, "
                f"Spark {spark} GB/s, ratio {spark / plain if plain else 0:.2f}"
            )
    yield ""
    yield "one process, CPU time            GB/s            a row of `messages`, µs"
    yield "messages  GiB a replica  read**  check  ratio    all columns  three"
    for row in found["sizes"]:
        yield (
            f"{row['messages']:<8}  {row['gib']:<13g}  {row['read_gb_per_cpu_second']:>6.2f}  "
            f"{row['check_gb_per_cpu_second']:>5.2f}  {row['check_to_read']:>5.2f}    "
            f"{row['row_microseconds']:>11.2f}  {row['narrow_row_microseconds']:>5.2f}"
        )
    yield "** all files read, with a CRC32C over them"
