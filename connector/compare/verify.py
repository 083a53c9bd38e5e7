"""Source and copy, compared item by item, while both change.

Owns the order of the comparison and the verdict. Pages of a consistent Scan are looked up in the
copy by key; rows whose key no page showed are ghosts until a read says otherwise. A difference is
first a suspicion: the item is read again, and so is its row once the copy covers that read.
Must not know SQL, HTTP or the types' rules: those are `replica` and `cells`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from checkpoints.positions import KeyAttribute
from connector.clock import Clock
from connector.compare.cells import Attribute, Column, cell_of, parse_item, shows, strays
from connector.compare.ledger import KeyLedger
from connector.compare.replica import EXTRA_COLUMN, Replica, Row, key_text, row_key_text
from connector.compare.shape import Condition, Shape
from connector.retry import patiently
from connector.snapshot.capacity import Grant, ReadCapacity
from connector.source import ScanPage, Source

EXIT_EQUAL: Final = 0
EXIT_DIFFERS: Final = 6

# The Date header has whole seconds: a read it stamps with T may have seen changes up to T + 1 s.
DATE_GRAIN_MS: Final = 1000
_KEYS_PER_LOOKUP: Final = 2000
_POLL_S: Final = 0.2


class Kind(StrEnum):
    """In what way a key differs."""

    VALUE = "value"
    MISSING = "missing"
    GHOST = "ghost"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not equal; `keys` and `source` are DynamoDB JSON, `copy` is text."""

    keys: str
    kind: Kind
    attribute: str | None = None
    source: str | None = None
    copy: str | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """How long and how often to ask before a difference counts.

    max_rounds   reads of source and copy for one suspected key
    max_wait_s   for the copy to cover a read, each round
    max_suspects suspected keys held at once; more are settled in between
    max_listed   differences told one by one; all are counted
    """

    total_segments: int = 4
    max_rcu: float | None = None
    max_rounds: int = 3
    max_wait_s: float = 30.0
    max_suspects: int = 2000
    max_listed: int = 1000
    max_attempts: int = 8


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a comparison stands; `phase` is scan, keys or settle."""

    phase: str
    segment: int
    total_segments: int
    compared: int
    suspects: int


@dataclass(slots=True)
class Report:
    """The verdict. Counts are of keys; `compared` is the number of keys found on either side.

    settled    differed at first and were equal once the copy had covered the read
    moving     changed on both sides at every read: neither equal nor different was proved
    repaired   differed, were handed to the service, and were equal then
    is_behind  the copy did not come to cover the reads in time, so differences may be plain lag
    """

    compared: int = 0
    equal: int = 0
    settled: int = 0
    repaired: int = 0
    values: int = 0
    missing: int = 0
    ghosts: int = 0
    duplicates: int = 0
    is_behind: bool = False
    moving: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    @property
    def differing(self) -> int:
        return self.values + self.missing + self.ghosts + self.duplicates

    @property
    def exit_status(self) -> int:
        return EXIT_DIFFERS if self.differing else EXIT_EQUAL

    def sentence(self) -> str:
        """The verdict in one sentence."""
        if not self.differing:
            verdict = f"Source and copy are equal: {self.compared:,} items compared"
        else:
            verdict = (
                f"Source and copy differ in {self.differing:,} of {self.compared:,} keys:"
                f" {self.values} by value, {self.missing} missing, {self.ghosts} ghosts,"
                f" {self.duplicates} more than once"
            )
        notes = [
            f"{count} {what}"
            for count, what in (
                (self.settled, "in flight and settled"),
                (self.repaired, "repaired"),
                (len(self.moving), "changed at every read and could not be compared"),
            )
            if count
        ]
        return ", ".join([verdict, *notes]) + "."


@dataclass(slots=True)
class _Suspect:
    """A key that differed, and what the last round saw of it."""

    keys: str
    image: str | None = None
    rows: list[Row] = field(default_factory=list)
    found: tuple[Difference, ...] = ()
    is_moving: bool = False


class Verification:
    """One comparison of one dataset with its table. One thread.

    `repair` takes the keys that differ, for the service to read anew; nothing else is written.
    """

    def __init__(
        self,
        source: Source,
        replica: Replica,
        key_schema: Sequence[KeyAttribute],
        clock: Clock,
        *,
        shape: Shape | None = None,
        rules: Rules | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        repair: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        self._source = source
        self._replica = replica
        self._key_schema = tuple(key_schema)
        self._clock = clock
        self._shape = shape or Shape()
        self._condition = Condition(self._shape.where) if self._shape.where is not None else None
        self._rules = rules or Rules()
        self._capacity = ReadCapacity(self._rules.max_rcu)
        self._on_progress = on_progress
        self._repair = repair
        self._suspects: dict[str, _Suspect] = {}
        self._report = Report()
        self._segment = 0

    def run(self) -> Report:
        """Compares everything once.

        Raises:
            SourceError, ServiceError: when one of the sides cannot be read at all.
        """
        with KeyLedger() as ledger:
            for segment in range(self._rules.total_segments):
                self._segment = segment
                for page in self._pages(segment):
                    self._compare(page, ledger)
                    self._tell("scan")
            self._read_copy_keys(ledger)
            for keys in ledger.only_in_copy():
                self._report.compared += 1
                self._suspect(keys)
            self._settle()
        return self._report

    def _pages(self, segment: int) -> Iterator[ScanPage]:
        start_key: str | None = None
        while True:
            grant = self._grant()
            page = patiently(
                lambda start_key=start_key: self._source.scan(  # type: ignore[misc]
                    segment, self._rules.total_segments, start_key, consistent=True
                ),
                self._clock,
                attempts=self._rules.max_attempts,
            )
            self._capacity.settle(grant, page.consumed_rcu)
            yield page
            start_key = page.last_evaluated_key
            if start_key is None:
                return

    def _grant(self) -> Grant:
        while True:
            grant = self._capacity.ask(self._clock.monotonic_s())
            if isinstance(grant, Grant):
                return grant
            self._clock.sleep(max(0.0, grant - self._clock.monotonic_s()))

    def _compare(self, page: ScanPage, ledger: KeyLedger) -> None:
        images: list[str] = page.changes.column("image").to_pylist()
        for start in range(0, len(images), _KEYS_PER_LOOKUP):
            some = images[start : start + _KEYS_PER_LOOKUP]
            by_key = {key_text(item, self._key_schema): item for item in map(parse_item, some)}
            ledger.add_source(list(by_key))
            for keys, found in self._look_up(by_key).items():
                self._report.compared += 1
                if found[1]:
                    self._suspect(keys)
                else:
                    self._report.equal += 1

    def _look_up(
        self, items: Mapping[str, Mapping[str, Attribute] | None]
    ) -> dict[str, tuple[list[Row], tuple[Difference, ...]]]:
        """For each key the rows of the copy, and how they differ from its item, if there is one."""
        columns = self._replica.columns()
        rows: dict[str, list[Row]] = {keys: [] for keys in items}
        for row in self._replica.rows(columns, [parse_item(keys) for keys in items]):
            keys = row_key_text(row, columns, self._key_schema)
            if keys in rows:
                rows[keys].append(row)
        shown = self._shown(items, columns)
        return {
            keys: (
                rows[keys],
                differences(keys, item, rows[keys], columns, null_misfits=self._shape.null_misfits),
            )
            for keys, item in shown.items()
        }

    def _shown(
        self, items: Mapping[str, Mapping[str, Attribute] | None], columns: Sequence[Column]
    ) -> dict[str, Mapping[str, Attribute] | None]:
        """What of each item has to be in the copy; nothing of one that `where` leaves out."""
        shaped = {
            keys: None if item is None else self._shape.of(item) for keys, item in items.items()
        }
        if self._condition is None:
            return dict(shaped)
        there = {keys: item for keys, item in shaped.items() if item is not None}
        kept = self._condition.keeps(list(there.values()), columns)
        return dict.fromkeys(shaped) | {
            keys: item for (keys, item), is_kept in zip(there.items(), kept, strict=True) if is_kept
        }

    def _read_copy_keys(self, ledger: KeyLedger) -> None:
        columns = self._replica.columns()
        some: list[str] = []
        for row in self._replica.keys(columns):
            some.append(row_key_text(row, columns, self._key_schema))
            if len(some) == _KEYS_PER_LOOKUP:
                ledger.add_copy(some)
                some = []
                self._tell("keys")
        ledger.add_copy(some)

    def _suspect(self, keys: str) -> None:
        self._suspects.setdefault(keys, _Suspect(keys))
        if len(self._suspects) >= self._rules.max_suspects:
            self._settle()

    def _settle(self) -> None:
        """Empties the suspects into the report."""
        before = len(self._suspects)
        self._read_again()
        self._report.settled += before - len(self._suspects)
        if self._repair is not None and self._suspects:
            before = len(self._suspects)
            self._repair([s.keys for s in self._suspects.values() if not s.is_moving])
            self._read_again()
            self._report.repaired += before - len(self._suspects)
        for suspect in self._suspects.values():
            self._judge(suspect)
        self._suspects.clear()

    def _read_again(self) -> None:
        """Rounds of reading both sides; what is equal leaves the suspects."""
        for round_number in range(self._rules.max_rounds):
            if not self._suspects:
                return
            self._tell("settle")
            is_covered = self._round(is_first=round_number == 0)
            if not is_covered:
                # Lag explains everything from here on, and more rounds would only wait again.
                self._report.is_behind |= bool(self._suspects)
                return

    def _round(self, *, is_first: bool) -> bool:
        reads = {keys: self._get_item(keys) for keys in self._suspects}
        newest_ms = max(at_ms for _, at_ms in reads.values())
        is_covered = self._wait_for(newest_ms + DATE_GRAIN_MS)
        keys_of_round = list(reads)
        for start in range(0, len(keys_of_round), _KEYS_PER_LOOKUP):
            some = keys_of_round[start : start + _KEYS_PER_LOOKUP]
            items = {keys: _parsed(reads[keys][0]) for keys in some}
            for keys, (rows, found) in self._look_up(items).items():
                if not found:
                    del self._suspects[keys]
                    continue
                suspect, image = self._suspects[keys], reads[keys][0]
                suspect.is_moving = not is_first and image != suspect.image and rows != suspect.rows
                suspect.image, suspect.rows, suspect.found = image, rows, found
        return is_covered

    def _get_item(self, keys: str) -> tuple[str | None, int]:
        return patiently(
            lambda: self._source.get_item(keys), self._clock, attempts=self._rules.max_attempts
        )

    def _wait_for(self, covered_ms: int) -> bool:
        """Whether the copy came to cover this AWS time."""
        give_up_s = self._clock.monotonic_s() + self._rules.max_wait_s
        while True:
            covered_until_ms = self._replica.covered_until_ms()
            if covered_until_ms is not None and covered_until_ms >= covered_ms:
                return True
            if not self._replica.is_live or self._clock.monotonic_s() >= give_up_s:
                return False
            self._clock.sleep(_POLL_S)

    def _judge(self, suspect: _Suspect) -> None:
        if suspect.is_moving:
            self._report.moving.append(suspect.keys)
            return
        match suspect.found[0].kind:
            case Kind.VALUE:
                self._report.values += 1
            case Kind.MISSING:
                self._report.missing += 1
            case Kind.GHOST:
                self._report.ghosts += 1
            case Kind.DUPLICATE:
                self._report.duplicates += 1
        room = self._rules.max_listed - len(self._report.differences)
        self._report.differences.extend(suspect.found[:room])

    def _tell(self, phase: str) -> None:
        if self._on_progress is not None:
            self._on_progress(
                Progress(
                    phase,
                    self._segment,
                    self._rules.total_segments,
                    self._report.compared,
                    len(self._suspects),
                )
            )


def differences(
    keys: str,
    item: Mapping[str, Attribute] | None,
    rows: Sequence[Row],
    columns: Sequence[Column],
    *,
    null_misfits: bool = False,
) -> tuple[Difference, ...]:
    """Everything in which the rows under one key are not the item; empty when they are equal.

    null_misfits   a pinned column is NULL where the value does not fit it
    """
    if item is None:
        return (Difference(keys, Kind.GHOST, copy=_text(rows[0])),) if rows else ()
    if not rows:
        return (Difference(keys, Kind.MISSING, source=_text(item)),)
    if len(rows) > 1:
        return (Difference(keys, Kind.DUPLICATE, copy=f"{len(rows)} rows"),)
    (row,) = rows
    found = [
        Difference(
            keys,
            Kind.VALUE,
            column.attribute,
            _text(item[column.attribute]) if column.attribute in item else None,
            _text(row.get(column.name)),
        )
        for column in columns
        if not _is_shown(row.get(column.name), item.get(column.attribute), column, null_misfits)
    ]
    shown = {column.attribute for column in columns}
    rest = {name: value for name, value in item.items() if name not in shown}
    found.extend(
        Difference(
            keys,
            Kind.VALUE,
            name,
            _text(rest[name]) if name in rest else None,
            _text(row.get(EXTRA_COLUMN)),
        )
        for name in strays(row.get(EXTRA_COLUMN), rest)
    )
    return tuple(found)


def _is_shown(cell: Any, attribute: Attribute | None, column: Column, null_misfits: bool) -> bool:
    if cell is None and null_misfits and cell_of(attribute, column.type) is None:
        return True
    return shows(cell, attribute, column.type)


def _parsed(image: str | None) -> dict[str, Attribute] | None:
    return None if image is None else parse_item(image)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
