"""``report.html``: one page that needs no other file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from spark.audit.audit import Audit
from spark.report.charts import WORDS, agreement_map, messages_over_time, topic_totals
from store.counted import counted
from store.verify.findings import UNKNOWN_REPLICA

# The rest is in the Parquet files.
FINDINGS_SHOWN = 200
TASKS_SHOWN = 20
TOPICS_SHOWN = 50

STYLE = """
:root{color-scheme:light dark;--ink:#1c2330;--dim:#667085;--line:#d9dee7;--page:#f6f7f9;--card:#fff;
--same:#3d9970;--behind:#b8c0cc;--damaged:#d9480f;--differs:#b4237a}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--dim:#98a2b3;--line:#333b49;--page:#12161d;
--card:#1b212b;--behind:#566070}}
*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}main{max-width:1100px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:26px;margin:0 0 4px}h2{font-size:18px;margin:32px 0 10px}.dim,.axis{color:var(--dim)}
section,.cards>div{background:var(--card);border:1px solid var(--line);border-radius:10px;
padding:16px 18px;overflow-x:auto;margin:0 0 14px}
.verdict{font-weight:600}.verdict.good{color:var(--same)}.verdict.bad{color:var(--damaged)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:18px 0}
.cards>div{margin:0}.cards b{display:block;font-size:21px;font-variant-numeric:tabular-nums}
svg{width:100%;height:auto;display:block}text{fill:var(--ink);font-size:13px}
text.axis{fill:var(--dim);font-size:12px}text.end{text-anchor:end}line{stroke:var(--line)}
.same{fill:var(--same);background:var(--same)}.behind{fill:var(--behind);background:var(--behind)}
.damaged{fill:var(--damaged);background:var(--damaged)}
.differs{fill:var(--differs);background:var(--differs)}
.legend span{margin-right:18px;white-space:nowrap}.legend{margin:10px 0 0}
.legend i{display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:6px}
.t0{fill:#3b76c4;background:#3b76c4}.t1{fill:#e0912f;background:#e0912f}
.t2{fill:#5aa469;background:#5aa469}.t3{fill:#a05bb0;background:#a05bb0}
.t4{fill:#c2514f;background:#c2514f}.t5{fill:#46a5a5;background:#46a5a5}
.t6{fill:#8a8f99;background:#8a8f99}
table{border-collapse:collapse;width:100%}th{text-align:left;color:var(--dim);font-weight:500}
td,th{padding:5px 12px 5px 0;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.finding h3{font-size:15px;margin:0 0 6px}.finding dl{display:grid;margin:0;
grid-template-columns:90px 1fr;gap:2px 12px}.finding dt{color:var(--dim)}
.finding dd{margin:0;overflow-wrap:anywhere}
pre{font:13px/1.5 ui-monospace,monospace;margin:10px 0 0;overflow-x:auto}
mark{background:var(--damaged);color:#fff;border-radius:2px}
"""


def render(audit: Audit, summary: dict[str, Any], findings: list[dict[str, Any]]) -> str:
    """The page. ``summary`` and ``findings`` are the contents of the other files."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width,initial-scale=1">',
        f"<title>Replica audit</title><style>{STYLE}</style><main>",
        verdict(audit, summary),
        cards(summary),
    ]
    legend = "".join(f'<span><i class="{word}"></i>{word}</span>' for word in WORDS)
    for group in audit.groups:
        parts.append(f"<h2>Agreement of {escape(group.plan.group)}</h2><section>")
        parts.append(f'{agreement_map(group)}<p class="legend">{legend}</p></section>')
    parts.append("<h2>Findings</h2>")
    if not findings:
        parts.append("<section>None.</section>")
    parts += [finding_card(finding) for finding in findings[:FINDINGS_SHOWN]]
    if len(findings) > FINDINGS_SHOWN:
        more = len(findings) - FINDINGS_SHOWN
        parts.append(f"<section>{more:,} more are in findings.parquet.</section>")
    parts += [replica_table(summary), message_section(audit), task_table(audit)]
    parts.append("</main></html>\n")
    return "".join(parts)


def verdict(audit: Audit, summary: dict[str, Any]) -> str:
    groups = ", ".join(escape(group.plan.group) for group in audit.groups)
    if summary["consistent"]:
        line = '<p class="verdict good">The replicas are consistent.</p>'
    else:
        line = f'<p class="verdict bad">{counted(summary["findings"], "finding")}.</p>'
    return f"<h1>Replica audit of {groups or 'no group'}</h1>{line}"


def cards(summary: dict[str, Any]) -> str:
    seconds = summary["scan_seconds"]
    rate = summary["bytes_read"] / seconds if seconds else 0
    values = [
        ("replicas", sum(len(group["replicas"]) for group in summary["groups"])),
        ("entries", f"{sum(group['entries'] for group in summary['groups']):,}"),
        ("messages", f"{sum(group['messages'] for group in summary['groups']):,}"),
        ("log read", size(summary["bytes_read"])),
        ("time of the scan", f"{seconds:.1f} s"),
        ("throughput", f"{size(rate)}/s"),
    ]
    inner = "".join(
        f'<div><span class="dim">{name}</span><b>{value}</b></div>' for name, value in values
    )
    return f'<div class="cards">{inner}</div>'


def finding_card(finding: dict[str, Any]) -> str:
    first, last = finding["index_first"], finding["index_last"]
    if first is None:
        where = ""
    else:
        where = f", entry {first:,}" if first == last else f", entries {first:,} to {last:,}"
    majority = ", ".join(finding["majority"])
    if not majority:
        unknown = finding["replica"] == UNKNOWN_REPLICA
        majority = "none: which side is right is unknown" if unknown else "does not say"
    items = [
        ("file", f"{finding['path']}, byte {finding['position']:,}"),
        ("expected", finding["expected"]),
        ("found", finding["found"]),
        ("majority", majority),
        ("what to do", finding["advice"]),
    ]
    inner = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in items)
    title = f"{escape(finding['replica'])}: {escape(finding['kind'])}{where}"
    at = (finding["context_position"], finding["position"])
    dump = hex_dump(finding["context"], *at)
    if finding["majority_context"]:
        dump += f"<p class=dim>in {escape(finding['majority'][0])}:</p>"
        dump += hex_dump(finding["majority_context"], *at)
    return f'<section class="finding"><h3>{title}</h3><dl>{inner}</dl>{dump}</section>'


def hex_dump(data: bytes, start: int, marked: int) -> str:
    """Sixteen bytes a line. The byte at ``marked`` is highlighted."""
    if not data:
        return ""
    lines = []
    for begin in range(start - start % 16, start + len(data), 16):
        codes, text = [], []
        for byte in range(begin, begin + 16):
            place = byte - start
            if not 0 <= place < len(data):
                codes.append("  ")
                text.append(" ")
                continue
            value = data[place]
            code = f"{value:02x}"
            letter = escape(chr(value)) if 32 <= value < 127 else "."
            codes.append(f"<mark>{code}</mark>" if byte == marked else code)
            text.append(f"<mark>{letter}</mark>" if byte == marked else letter)
        lines.append(f"{begin:010x}  {' '.join(codes)}  {''.join(text)}")
    return f"<pre>{chr(10).join(lines)}</pre>"


def replica_table(summary: dict[str, Any]) -> str:
    rows = [
        (one["replica"], one["directory"], one["first_index"], one["commit_index"], one["findings"])
        for group in summary["groups"]
        for one in group["replicas"]
    ]
    head = ("Replica", "Directory", "First entry", "Last committed", "Findings")
    return f"<h2>Replicas</h2><section>{table(head, rows)}</section>"


def message_section(audit: Audit) -> str:
    totals = list(topic_totals(audit.counts).items())
    rest = len(totals) - TOPICS_SHOWN
    more = f"<p class=dim>{rest:,} more topics</p>" if rest > 0 else ""
    return (
        f"<h2>Messages</h2><section>{messages_over_time(audit.counts)}</section>"
        f"<section>{table(('Topic', 'Messages'), totals[:TOPICS_SHOWN])}{more}</section>"
    )


def task_table(audit: Audit) -> str:
    rows = []
    for group in audit.groups:
        for result in group.results:
            seconds = group.seconds[result.number]
            rate = size(result.bytes_read / seconds) if seconds else "-"
            rows.append(
                (
                    seconds,
                    f"{group.plan.group} {result.number}",
                    f"{result.first_index:,} to {result.last_index:,}",
                    size(result.bytes_read),
                    f"{rate}/s",
                )
            )
    rows.sort(key=lambda row: -row[0])
    shown = [
        (name, entries, read, f"{took:.2f} s", rate) for took, name, entries, read, rate in rows
    ]
    head = ("Range", "Entries", "Read", "Time", "Throughput")
    return (
        f"<h2>Slowest ranges</h2><section>{table(head, shown[:TASKS_SHOWN])}"
        f"<p class=dim>of {len(rows):,}</p></section>"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in HTML. Numbers are aligned to the right."""
    numeric = [isinstance(value, int) for value in rows[0]] if rows else [False] * len(head)
    names = zip(head, numeric, strict=True)
    lines = [
        "".join(
            f'<th class="n">{name}</th>' if right else f"<th>{name}</th>" for name, right in names
        )
    ]
    for row in rows:
        cells = []
        for value in row:
            shown = f"{value:,}" if isinstance(value, int) else escape(str(value))
            cells.append(
                f'<td class="n">{shown}</td>' if isinstance(value, int) else f"<td>{shown}</td>"
            )
        lines.append("".join(cells))
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def size(count: float) -> str:
    """Bytes in decimal units."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"
