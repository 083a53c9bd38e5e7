"""What the shell completes: tables, columns and keywords.

Owns the list and which part of it fits at the cursor. The names are asked for in a thread of its
own, so that a prompt never waits for them. Must not know where the answer comes from.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import duckdb
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from accelerator.errors import AcceleratorError
from accelerator.query_errors import QueryError
from accelerator.sql import identifier
from connector.cli.sql_view import QuerySource
from connector.errors import DynaduckError

LEARN_EVERY_S: Final = 30.0
NAMES: Final = "SELECT table_schema, table_name, column_name FROM information_schema.columns"
COMMANDS: Final = ("\\d", "\\format", "\\help", "\\q", "\\timing", "\\watch")
_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_]*")
_WORD: Final = re.compile(r'(?:[\w"]+\.)*[\w"]*$')

Name = tuple[str, str, str]
"""Schema, table, column."""


class Words(Completer):
    """`names` asks for the columns that there are; it may take its time, and it may fail."""

    def __init__(
        self,
        names: Callable[[], Iterable[Name]],
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._names = names
        self._monotonic_s = monotonic_s
        self._keywords = sorted(_keywords())
        self._relations: dict[str, list[str]] = {}
        self._due_s = float("-inf")
        self._learning: threading.Thread | None = None

    def learn(self) -> None:
        """Asks for the names again if that was long ago; returns at once."""
        is_learning = self._learning is not None and self._learning.is_alive()
        if is_learning or self._monotonic_s() < self._due_s:
            return
        self._due_s = self._monotonic_s() + LEARN_EVERY_S
        self._learning = threading.Thread(target=self.learn_now, name="words", daemon=True)
        self._learning.start()

    def learn_now(self) -> None:
        relations: dict[str, list[str]] = {}
        for schema, table, column in self._names():
            full = _typed(table) if schema == "main" else f"{_typed(schema)}.{_typed(table)}"
            relations.setdefault(full, []).append(_typed(column))
        if relations:
            self._relations = relations

    def get_completions(
        self, document: Document, _complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        before = document.text_before_cursor
        if before.lstrip().startswith("\\") and " " not in before.lstrip():
            word = before.lstrip()
            yield from (Completion(c, -len(word)) for c in COMMANDS if c.startswith(word))
            return
        found = _WORD.search(before)
        word = found[0] if found else ""
        for candidate, kind in self._candidates(word, before):
            if candidate.lower().startswith(word.lower()):
                yield Completion(candidate, -len(word), display_meta=kind)

    def _candidates(self, word: str, before: str) -> Iterator[tuple[str, str]]:
        relations = self._relations
        table = word.rpartition(".")[0].lower()
        for name, columns in relations.items():
            if name.lower() == table:
                yield from ((f"{word.rpartition('.')[0]}.{c}", "column") for c in columns)
        yield from ((name, "table") for name in relations)
        if not word:
            return
        named = [n for n in relations if re.search(rf"\b{re.escape(n)}\b", before, re.IGNORECASE)]
        # The columns of the tables that the statement names; of all of them before it does.
        fitting = {c for n in named or relations for c in relations[n]}
        yield from ((column, "column") for column in sorted(fitting))
        is_upper = not word.islower()
        yield from ((k.upper() if is_upper else k, "") for k in self._keywords)


def names_of(source: QuerySource) -> list[Name]:
    """The columns that a user may name; none where they cannot be asked for."""
    try:
        with source.run(NAMES, "application/json") as rows:
            found = json.loads(b"".join(rows.chunks))
    except (DynaduckError, QueryError, AcceleratorError, ValueError):
        return []
    return [(r["table_schema"], r["table_name"], r["column_name"]) for r in found]


def _typed(name: str) -> str:
    """The name as it has to be typed."""
    return name if _PLAIN.fullmatch(name.lower()) else identifier(name)


def _keywords() -> list[str]:
    """DuckDB's own, from an instance of this process."""
    with duckdb.connect(":memory:") as instance:
        found = instance.execute(
            "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category IN "
            "('reserved', 'type_function') ORDER BY 1"
        ).fetchall()
    common = (
        "between",
        "exists",
        "filter",
        "first",
        "last",
        "nulls",
        "over",
        "partition",
        "values",
    )
    return [str(name) for (name,) in found] + list(common)
