"""The results as pictures for the documentation: plain SVG, drawn here.

Owns shapes and colours. Knows only figures and samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from bench.figures import Results

WIDTH: Final = 640
ROW: Final = 30
LEFT: Final = 250
RATES: Final = (
    "plain loop, executemany",
    "plain loop",
    "whole path, 1 shard",
    "whole path, 16 shards",
    "boto3 Scan, TypeDeserializer, append",
    "snapshot, 8 segments",
    "in memory, groups",
    "floor: read, cut, drop",
    "DuckDB append alone",
)


def draw(results: Results, directory: Path) -> None:
    """rates-ROWS.svg for each size; latency-ROWS.svg where it was measured."""
    directory.mkdir(parents=True, exist_ok=True)
    for rows in sorted({figure.rows for figure in results.figures}):
        found = [
            (name, figure.value)
            for name in RATES
            for figure in results.figures
            if figure.name == name and figure.rows == rows
        ]
        if found:
            title = f"Thousand records per second, table of {rows:,} rows"
            text = bars(title, [(name, value / 1000) for name, value in found])
            (directory / f"rates-{rows}.svg").write_text(text)
        late = results.samples.get(f"write to visible at {rows}")
        if late:
            text = curve(f"Write to visible, ms, table of {rows:,} rows", late)
            (directory / f"latency-{rows}.svg").write_text(text)


def bars(title: str, values: Sequence[tuple[str, float]]) -> str:
    """One bar for each value, the longest over the whole width."""
    longest = max(value for _, value in values)
    body = []
    for number, (name, value) in enumerate(values):
        y = 40 + number * ROW
        width = max(1.0, (WIDTH - LEFT - 70) * value / longest)
        body.append(
            f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="20" fill="#3b6ea5"/>'
            f'<text x="{LEFT + width + 6:.1f}" y="{y + 15}">{value:,.3g}</text>'
        )
    return _picture(title, body, 50 + ROW * len(values))


def curve(title: str, ordered: Sequence[float]) -> str:
    """What share of the values is at most so large."""
    height, most = 260, ordered[-1] or 1.0
    points = " ".join(
        f"{60 + (WIDTH - 90) * value / most:.1f},{height - 40 - (height - 90) * at:.1f}"
        for value, at in (
            (ordered[min(len(ordered) - 1, int(share * len(ordered) / 100))], share / 100)
            for share in range(101)
        )
    )
    body = [
        f'<polyline points="{points}" fill="none" stroke="#3b6ea5" stroke-width="2"/>',
        f'<line x1="60" y1="{height - 40}" x2="{WIDTH - 30}" y2="{height - 40}" stroke="#888"/>',
    ]
    for part in range(5):
        x, y = 60 + (WIDTH - 90) * part / 4, height - 40 - (height - 90) * part / 4
        label = f"{most * part / 4:,.0f}"
        body.append(f'<text x="{x:.0f}" y="{height - 20}" text-anchor="middle">{label}</text>')
        body.append(f'<text x="52" y="{y + 4:.0f}" text-anchor="end">{25 * part} %</text>')
    return _picture(title, body, height)


def _picture(title: str, body: Sequence[str], height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/>'
        f'<text x="{WIDTH / 2}" y="22" text-anchor="middle" font-size="14">{escape(title)}</text>'
        + "".join(body)
        + "</svg>\n"
    )
