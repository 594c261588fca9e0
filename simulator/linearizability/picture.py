"""Draws operations that could not have happened one at a time, as one self-contained page.

Each client has a lane, each operation a bar from its call to its end. The longest order that was
found is numbered; the first operation that fits nowhere in it is red.
"""

from __future__ import annotations

from html import escape
from math import inf

from simulator.linearizability.checker import Search

LANE_HEIGHT = 46
BAR_HEIGHT = 26
LEFT = 90
WIDTH = 1400

PAGE = """<!doctype html>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 14px system-ui, sans-serif; margin: 24px; color: #1d2733; }}
p {{ max-width: 60em; }}
.scroll {{ overflow-x: auto; border: 1px solid #c9d1d9; }}
text {{ font: 12px system-ui, sans-serif; }}
.lane {{ stroke: #e3e7eb; }}
.write {{ fill: #cfe3f7; stroke: #3b78b5; }}
.read {{ fill: #d9efd9; stroke: #3f8f4a; }}
.misfit {{ fill: #f9d0d0; stroke: #c62828; stroke-width: 2; }}
.later {{ fill: #eceff1; stroke: #90a4ae; }}
.open {{ stroke-dasharray: 5 3; }}
</style>
<h1>{title}</h1>
<p>Blue writes, green reads; dashed bars are operations whose outcome nobody knows. Numbers give the
longest order that was found. Nothing explains the red one: <b>{misfit}</b>. Grey ones come after it
or were not needed.</p>
<div class="scroll"><svg width="{width}" height="{height}" role="img" aria-label="{title}">
{marks}
</svg></div>
"""


def picture(search: Search) -> str:
    """The page."""
    operations = search.operations
    lanes = sorted({operation.client for operation in operations})
    begin = min(operation.called_at for operation in operations)
    times = [time for each in operations for time in (each.called_at, each.ended_at) if time < inf]
    seconds = max(max(times) - begin, 1e-3)
    width = max(WIDTH, 60 * len(operations))
    scale = (width - LEFT - 40) / seconds
    numbers = {place: number for number, place in enumerate(search.order, 1)}
    marks = []
    for lane, client in enumerate(lanes):
        y = 30 + LANE_HEIGHT * lane
        marks.append(f'<line class="lane" x1="0" x2="{width}" y1="{y + 38}" y2="{y + 38}"/>')
        marks.append(f'<text x="8" y="{y + 17}">{escape(client)}</text>')
    for place, operation in enumerate(operations):
        x = LEFT + (operation.called_at - begin) * scale
        ended = operation.ended_at if operation.ended_at < inf else begin + seconds
        length = max((ended - operation.called_at) * scale, 4.0)
        y = 30 + LANE_HEIGHT * lanes.index(operation.client)
        kind = "write" if operation.is_write else "read"
        if place not in numbers:
            kind = "misfit" if operation is search.first_misfit else "later"
        dashed = " open" if operation.ended_at == inf else ""
        sign = "w" if operation.is_write else "r"
        label = f"{sign} {operation.value}"
        if place in numbers:
            label = f"{numbers[place]}: {label}"
        marks.append(
            f"<g><title>{escape(str(operation))}</title>"
            f'<rect class="{kind}{dashed}" x="{x:.1f}" y="{y}" width="{length:.1f}" '
            f'height="{BAR_HEIGHT}" rx="3"/>'
            f'<text x="{x + 3:.1f}" y="{y + 17}">{escape(label)}</text></g>'
        )
    return PAGE.format(
        title=escape(f"{search.register} is not linearizable"),
        misfit=escape(str(search.first_misfit)),
        width=width,
        height=50 + LANE_HEIGHT * len(lanes),
        marks="\n".join(marks),
    )
