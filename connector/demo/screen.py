"""What a person sees of the demo, on a terminal or in a log.

Owns the look. On a terminal there are bars and colours; elsewhere the same words come as plain
lines, none of them overwritten. Must not know where its numbers come from.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

PLAIN_EVERY_S: Final = 2.0
_WIDEST: Final = 100


class Bar(Protocol):
    def show(self, done: int, note: str = "") -> None: ...


class Screen:
    """Everything the demo says goes through here."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._began_s = time.monotonic()

    def title(self, text: str) -> None:
        self._console.rule(Text(text, style="bold cyan"), style="cyan", align="left")

    def say(self, text: str, style: str = "") -> None:
        """One line, with the seconds since the demo began."""
        seconds = time.monotonic() - self._began_s
        line = Text(f"{seconds:5.1f}s  ", style="dim")
        line.append(text, style=style or None)
        self._console.print(line)

    def good(self, text: str) -> None:
        self.say(text, "bold green")

    def bad(self, text: str) -> None:
        self.say(text, "bold red")

    def query(self, sql: str) -> None:
        for line in sql.strip().splitlines():
            self._console.print(Text("        " + line.strip(), style="yellow"))

    def table(self, rows: Sequence[Mapping[str, Any]], *, title: str | None = None) -> None:
        """Columns by the keys of the first row, numbers to the right."""
        if not rows:
            return
        shown = Table(title=title, title_justify="left", title_style="bold", pad_edge=False)
        for name in rows[0]:
            is_number = all(isinstance(row[name], int | float) for row in rows)
            shown.add_column(name, justify="right" if is_number else "left", overflow="fold")
        for row in rows:
            shown.add_row(*(_cell(value) for value in row.values()))
        width = min(self._console.width, _WIDEST) if self._console.is_terminal else _WIDEST
        self._console.print(shown, width=width)

    @contextmanager
    def bar(self, text: str, total: int) -> Iterator[Bar]:
        """A progress bar on a terminal, a line now and then elsewhere."""
        if not self._console.is_terminal:
            yield _Lines(self, text, total)
            return
        progress = Progress(
            TextColumn("        {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", style="dim"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        with progress:
            yield _Bar(progress, text, total)


class _Bar:
    def __init__(self, progress: Progress, text: str, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task(text, total=total, note="")

    def show(self, done: int, note: str = "") -> None:
        self._progress.update(self._task, completed=done, note=note)


class _Lines:
    def __init__(self, screen: Screen, text: str, total: int) -> None:
        self._screen, self._text, self._total = screen, text, total
        self._said_s = time.monotonic()

    def show(self, done: int, note: str = "") -> None:
        if time.monotonic() - self._said_s >= PLAIN_EVERY_S:
            self._said_s = time.monotonic()
            self._screen.say(f"{self._text}: {done:,} of {self._total:,}, {note}".rstrip(", "))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
