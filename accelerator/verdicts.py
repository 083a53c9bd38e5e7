"""Verdicts of the gate that are remembered: most queries are asked again and again.

Owns what may be remembered and when it counts no more. A verdict follows from the text, from the
names of the datasets, and from the values of parameters, so

- what DuckDB makes of a text is remembered for that text alone;
- a verdict that looked at a parameter is not remembered: it is judged anew on what was parsed;
- names are remembered as they were last read. A name that was added is found, since no refusal
  counts before the names are read again. One that is gone DuckDB itself does not find, since no
  view of its own has a name that the gate lets through; then `again` says it as the gate does.

So a remembered verdict needs no look at the catalogue in the query's snapshot, which costs more
than many a query. Refusals and PIVOTs are not remembered. Thread-safe.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import duckdb

from accelerator.freshness import visible_relations
from accelerator.gate import Parameters, Verdict, admit, judge, serialized
from accelerator.query_errors import QueryRejected

MOST_BYTES = 4 * 2**20
_LARGEST_SHARE = 16
_BYTES_AROUND = 500


@dataclass(frozen=True, slots=True)
class Admission:
    """A verdict. One that `is_remembered` may name relations that are gone."""

    verdict: Verdict
    is_remembered: bool


@dataclass(frozen=True, slots=True)
class _Known:
    """`parsed` where parameters have a say, the verdict where they have none."""

    parsed: str | None
    verdict: Verdict
    nbytes: int


class Verdicts:
    """The memory of one data file's gate; it holds at most `most_bytes` of text."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._names: Mapping[str, str] | None = None
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._nbytes = 0

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def admit(
        self, cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = None
    ) -> Admission:
        """Lets one harmless SELECT pass, as the gate does.

        Raises:
            QueryRejected, QueryFailed: as `gate.admit`
        """
        with self._lock:
            known, names = self._known.get(sql), self._names
            if known is not None:
                self._known.move_to_end(sql)
        if known is not None and known.parsed is None:
            return Admission(known.verdict, is_remembered=True)
        if names is None:
            return Admission(self.again(cursor, sql, parameters), is_remembered=False)
        parsed = serialized(cursor, sql) if known is None else known.parsed
        try:
            verdict = None if parsed is None else judge(parsed, names, parameters)
        except QueryRejected:
            verdict = None
        if parsed is None or verdict is None:
            return Admission(self.again(cursor, sql, parameters), is_remembered=False)
        if known is None:
            self._keep(sql, parsed, verdict, names)
        return Admission(verdict, is_remembered=True)

    def again(
        self, cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = None
    ) -> Verdict:
        """Judges by the names that the cursor's transaction sees, whatever is remembered.

        Raises:
            QueryRejected, QueryFailed: as `gate.admit`
        """
        names = visible_relations(cursor)
        with self._lock:
            if names != self._names:
                self._names = names
                self._known.clear()
                self._nbytes = 0
        return admit(cursor, sql, names, parameters)

    def _keep(self, sql: str, parsed: str, verdict: Verdict, names: Mapping[str, str]) -> None:
        kept = parsed if verdict.by_parameters else None
        nbytes = _BYTES_AROUND + 4 * len(sql) + 4 * len(kept or "")
        if nbytes > self._most_bytes // _LARGEST_SHARE:
            return
        with self._lock:
            if sql in self._known or names is not self._names:
                return
            self._known[sql] = _Known(kept, verdict, nbytes)
            self._nbytes += nbytes
            while self._nbytes > self._most_bytes:
                _, oldest = self._known.popitem(last=False)
                self._nbytes -= oldest.nbytes
