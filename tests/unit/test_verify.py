"""The comparison of source and copy: every kind of difference is found, lag is not one."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from accelerator.batch import CHANGES
from accelerator.database import Database
from checkpoints.positions import KeyAttribute, Position
from connector.compare import ledger as ledger_module
from connector.compare.ledger import KeyLedger
from connector.compare.replica import Answer, FileAsk, SqlReplica, key_text, parse_as_of
from connector.compare.verify import Kind, Progress, Report, Rules, Verification
from connector.errors import AccessDenied, Throttled
from connector.source import OpenedIterator, RecordsPage, ScanPage, StreamPage, TableDescription

SCHEMA = (KeyAttribute("pk", "S", "HASH"), KeyAttribute("sk", "N", "RANGE"))
COLUMNS = {"pk": "VARCHAR", "sk": "BIGINT", "v": "BIGINT", "j": "JSON", "Name.x": "VARCHAR"}
NAMES = {"Name.x": "name_x"}

Item = dict[str, Any]


def item(pk: str, sk: int, **attributes: Any) -> Item:
    return {"pk": {"S": pk}, "sk": {"N": str(sk)}} | attributes


class FakeClock:
    """Time that passes only while somebody sleeps; `on_sleep` is what the world does meanwhile."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.on_sleep: Callable[[], None] = lambda: None

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.on_sleep()


class FakeSource:
    """A table in memory, scanned in pages of `page_items`; the clock's seconds are AWS time."""

    def __init__(self, clock: FakeClock, items: Iterable[Item], page_items: int = 3) -> None:
        self.items = {key_text(one, SCHEMA): one for one in items}
        self.page_items = page_items
        self.clock = clock
        self.failures: list[Exception] = []
        self.on_get: Callable[[str], None] = lambda _: None
        self.gets: list[str] = []
        self.scans = 0

    def at_ms(self) -> int:
        return int(self.clock.now_s) * 1000

    def scan(
        self, segment: int, total_segments: int, start_key: str | None, *, consistent: bool
    ) -> ScanPage:
        assert consistent
        if self.failures:
            raise self.failures.pop()
        self.scans += 1
        mine = [k for i, k in enumerate(sorted(self.items)) if i % total_segments == segment]
        rest = [k for k in mine if start_key is None or k > start_key]
        page = rest[: self.page_items]
        images = [json.dumps(self.items[k]) for k in page]
        rows: dict[str, list[Any]] = {name: [None] * len(page) for name in CHANGES.names}
        rows |= {"op": ["snapshot"] * len(page), "ttl_delete": [False] * len(page), "image": images}
        last = page[-1] if len(rest) > len(page) else None
        return ScanPage(pa.table(rows, schema=CHANGES), last, 1.0, 0, self.at_ms())

    def get_item(self, keys: str) -> tuple[str | None, int]:
        self.gets.append(keys)
        self.on_get(keys)
        found = self.items.get(keys)
        return (None if found is None else json.dumps(found)), self.at_ms()

    def describe_table(self) -> TableDescription:
        raise NotImplementedError

    def describe_stream(
        self, stream_arn: str, *, start_shard_id: str | None = None, children_of: str | None = None
    ) -> StreamPage:
        raise NotImplementedError

    def open_iterator(self, stream_arn: str, shard_id: str, position: Position) -> OpenedIterator:
        raise NotImplementedError

    def get_records(self, shard_id: str, iterator: str, *, old_images: bool = False) -> RecordsPage:
        raise NotImplementedError


class Copy:
    """A real DuckDB with the view a service would keep, filled by hand; an `Ask`."""

    is_live = True

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.lag_s: float | None = 0.0
        self.connection = duckdb.connect()
        shown = ", ".join(f'"{NAMES.get(n, n)}" {t}' for n, t in COLUMNS.items())
        self.connection.execute(
            "CREATE SCHEMA dynaduck;"
            "CREATE TABLE dynaduck.columns"
            "(dataset VARCHAR, attribute VARCHAR, column_name VARCHAR, type VARCHAR);"
            f'CREATE TABLE main."my table" ({shown}, _extra JSON)'
        )
        for name, kind in COLUMNS.items():
            row = ["my table", name, NAMES.get(name, name), kind]
            self.connection.execute("INSERT INTO dynaduck.columns VALUES (?, ?, ?, ?)", row)

    def put(self, pk: str, sk: int, **cells: Any) -> None:
        self.remove(pk, sk)
        self.add(pk, sk, **cells)

    def add(self, pk: str, sk: int, **cells: Any) -> None:
        cells = {"pk": pk, "sk": sk} | cells
        names = ", ".join(f'"{name}"' for name in cells)
        marks = ", ".join("?" for _ in cells)
        self.connection.execute(
            f'INSERT INTO "my table" ({names}) VALUES ({marks})', list(cells.values())
        )

    def remove(self, pk: str, sk: int) -> None:
        self.connection.execute('DELETE FROM "my table" WHERE pk = ? AND sk = ?', [pk, sk])

    def __call__(self, query: str) -> Answer:
        table = self.connection.sql(query).to_arrow_table()
        covered_s = None if self.lag_s is None else self.clock.now_s - self.lag_s
        return Answer(table, None if covered_s is None else int(covered_s * 1000))


class Bench:
    """One source, one copy, one comparison."""

    def __init__(self, *items: Item) -> None:
        self.clock = FakeClock()
        self.source = FakeSource(self.clock, items)
        self.copy = Copy(self.clock)
        self.progress: list[Progress] = []

    def run(
        self, rules: Rules | None = None, repair: Callable[[Sequence[str]], None] | None = None
    ) -> Report:
        report = Verification(
            self.source,
            SqlReplica("my table", SCHEMA, self.copy),
            SCHEMA,
            self.clock,
            rules=rules or Rules(total_segments=2),
            on_progress=self.progress.append,
            repair=repair,
        ).run()
        accounted = report.equal + report.settled + report.repaired + report.differing
        assert report.compared == accounted + len(report.moving), "every key has one verdict"
        return report


def key(pk: str, sk: int) -> str:
    return key_text(item(pk, sk), SCHEMA)


def test_equal_sides_are_equal() -> None:
    """All pages of all segments are compared, with keys that SQL would like to misread."""
    names = ["a", "it's", 'qu"ote', "nul\x00", "\U0001f986", "); DROP TABLE x; --"]
    bench = Bench(*(item(pk, sk, v={"N": "1"}) for pk in names for sk in (-1, 0, 2)))
    for pk in names:
        for sk in (-1, 0, 2):
            bench.copy.put(pk, sk, v=1)
    report = bench.run()
    assert (report.compared, report.equal, report.exit_status) == (18, 18, 0)
    assert report.sentence() == "Source and copy are equal: 18 items compared."
    assert bench.source.gets == []
    assert bench.source.scans == 6
    assert [p.segment for p in bench.progress if p.phase == "scan"] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("cells", "kind", "attribute", "shown"),
    [
        ({"v": 2}, Kind.VALUE, "v", "2"),
        ({}, Kind.VALUE, "v", None),
        ({"v": 1, "name_x": "y"}, Kind.VALUE, "Name.x", "y"),
        ({"v": 1, "j": "{}"}, Kind.VALUE, "j", "{}"),
        ({"v": 1, "_extra": '{"z":1}'}, Kind.VALUE, "z", '{"z":1}'),
    ],
)
def test_a_wrong_cell_is_named(cells: Item, kind: Kind, attribute: str, shown: str | None) -> None:
    """A cell with another value, none, or one too many is a difference under its attribute."""
    bench = Bench(item("a", 1, v={"N": "1"}), item("b", 2, v={"N": "1"}))
    bench.copy.put("a", 1, **cells)
    bench.copy.put("b", 2, v=1)
    report = bench.run()
    (found,) = report.differences
    assert (found.keys, found.kind, found.attribute, found.copy) == (
        key("a", 1), kind, attribute, shown,
    )  # fmt: skip
    assert (report.values, report.exit_status) == (1, 6)


def test_an_attribute_that_no_column_shows_is_a_difference() -> None:
    """Neither in a column nor in `_extra` means lost."""
    bench = Bench(item("a", 1, lost={"S": "x"}))
    bench.copy.put("a", 1)
    (found,) = bench.run().differences
    assert (found.attribute, found.source) == ("lost", '{"S": "x"}')


def test_missing_ghosts_and_duplicates_are_told_apart() -> None:
    """A lost row, a row too many under a key, and a row without an item are three things."""
    bench = Bench(item("lost", 1), item("twice", 1), item("fine", 1))
    bench.copy.put("fine", 1)
    bench.copy.add("twice", 1)
    bench.copy.add("twice", 1)
    bench.copy.put("ghost", 1, v=7)
    report = bench.run()
    assert (report.missing, report.duplicates, report.ghosts, report.equal) == (1, 1, 1, 1)
    assert {(d.kind, d.keys) for d in report.differences} == {
        (Kind.MISSING, key("lost", 1)),
        (Kind.DUPLICATE, key("twice", 1)),
        (Kind.GHOST, key("ghost", 1)),
    }
    assert report.exit_status == 6
    assert "1 missing, 1 ghosts, 1 more than once" in report.sentence()


def test_a_change_in_flight_settles() -> None:
    """A put, an update and a delete that the copy has not applied yet are lag, not differences."""
    bench = Bench(item("put", 1), item("update", 1, v={"N": "2"}))
    bench.copy.put("update", 1, v=1)
    bench.copy.put("delete", 1)
    bench.copy.lag_s = 2.0

    def apply() -> None:
        if bench.clock.now_s > 2:
            bench.copy.put("put", 1)
            bench.copy.put("update", 1, v=2)
            bench.copy.remove("delete", 1)

    bench.clock.on_sleep = apply
    report = bench.run()
    assert (report.settled, report.differing, report.exit_status) == (3, 0, 0)
    assert report.sentence().endswith("3 in flight and settled.")


def test_a_row_is_judged_only_once_the_copy_covers_the_read() -> None:
    """Read at T, compared when the copy covers T + 1 s: the Date header has whole seconds."""
    bench = Bench(item("a", 1, v={"N": "2"}))
    bench.copy.put("a", 1, v=1)
    bench.clock.now_s = 10.9
    bench.copy.lag_s = 0.0
    bench.clock.on_sleep = lambda: bench.copy.put("a", 1, v=2)
    report = bench.run(Rules(max_rounds=1))
    assert (report.settled, report.is_behind) == (1, False)
    assert bench.clock.now_s >= 11


def test_an_item_that_changes_again_is_read_again() -> None:
    """Each round compares with the newest read, so two changes in a row settle too."""
    bench = Bench(item("a", 1, v={"N": "1"}))
    bench.copy.put("a", 1, v=0)
    versions = iter(range(2, 4))

    def change(keys: str) -> None:
        if (version := next(versions, None)) is not None:
            bench.source.items[keys]["v"] = {"N": str(version)}

    bench.source.on_get = change
    rounds: list[float] = []

    def apply() -> None:
        rounds.append(bench.clock.now_s)
        bench.copy.put("a", 1, v=3 if bench.source.gets[2:] else 1)

    bench.clock.on_sleep = apply
    report = bench.run()
    assert (report.settled, report.differing) == (1, 0)
    assert len(bench.source.gets) == 3


def test_a_difference_that_stays_is_read_the_set_number_of_times() -> None:
    """The number of rounds is bounded, and a stuck row is a difference at their end."""
    bench = Bench(item("a", 1, v={"N": "1"}))
    bench.copy.put("a", 1, v=0)
    report = bench.run(Rules(max_rounds=3))
    assert (report.values, len(bench.source.gets)) == (1, 3)


def test_a_row_stuck_behind_a_moving_item_is_a_difference() -> None:
    """Only a key that moves on both sides is left without a verdict."""
    bench = Bench(item("stuck", 1, v={"N": "1"}), item("moving", 1, v={"N": "1"}))
    bench.copy.put("stuck", 1, v=0)
    bench.copy.put("moving", 1, v=0)

    def change(keys: str) -> None:
        version = len(bench.source.gets) + 10
        bench.source.items[keys]["v"] = {"N": str(version)}

    bench.source.on_get = change
    bench.clock.on_sleep = lambda: bench.copy.put("moving", 1, v=1000 + int(bench.clock.now_s * 10))
    report = bench.run()
    assert report.moving == [key("moving", 1)]
    assert [d.keys for d in report.differences] == [key("stuck", 1)]
    assert "1 changed at every read" in report.sentence()


def test_a_row_that_moves_while_its_item_stands_still_is_a_difference() -> None:
    """Whatever the row does, the item it should show has not changed."""
    bench = Bench(item("a", 1, v={"N": "1"}))
    bench.copy.put("a", 1, v=0)
    bench.clock.on_sleep = lambda: bench.copy.put("a", 1, v=1000 + int(bench.clock.now_s * 10))
    report = bench.run()
    assert (report.values, report.moving) == (1, [])


def test_a_copy_that_does_not_come_to_cover_a_read_is_behind() -> None:
    """The wait is bounded, the difference stands, and the report says that it may be lag."""
    bench = Bench(item("a", 1, v={"N": "1"}))
    bench.copy.lag_s = None
    report = bench.run(Rules(max_wait_s=5))
    assert (report.missing, report.is_behind) == (1, True)
    assert 5 <= bench.clock.now_s < 7


def test_a_copy_that_is_not_live_is_not_waited_for() -> None:
    """A file without a service does not move, however long one waits."""
    bench = Bench(item("a", 1))
    bench.copy.is_live = False
    report = bench.run()
    assert (report.missing, report.is_behind, bench.clock.now_s) == (1, True, 0.0)


def test_suspects_are_settled_in_between_when_they_are_many() -> None:
    """What is held in memory is bounded, also when every key differs."""
    bench = Bench(*(item("a", n) for n in range(10)))
    report = bench.run(Rules(max_suspects=3, max_listed=4, max_rounds=1))
    assert (report.missing, len(report.differences)) == (10, 4)
    assert max(p.suspects for p in bench.progress) <= 3


def test_repair_hands_over_what_differs_and_looks_again() -> None:
    """What the service mends counts as repaired, what it does not stays a difference."""
    bench = Bench(item("a", 1, v={"N": "1"}), item("b", 1), item("c", 1))
    bench.copy.put("c", 1)
    handed: list[str] = []

    def repair(keys: Sequence[str]) -> None:
        handed.extend(keys)
        bench.copy.put("a", 1, v=1)

    report = bench.run(Rules(max_rounds=1), repair)
    assert sorted(handed) == [key("a", 1), key("b", 1)]
    assert (report.repaired, report.missing, report.exit_status) == (1, 1, 6)


def test_number_keys_are_compared_by_value() -> None:
    """1, 1.0 and 1E0 are one key, in any column type that holds them."""
    bench = Bench({"pk": {"S": "a"}, "sk": {"N": "1.0"}}, {"pk": {"S": "a"}, "sk": {"N": "2E0"}})
    bench.copy.connection.execute('ALTER TABLE "my table" ALTER sk TYPE DECIMAL(38,2)')
    bench.copy.connection.execute(
        "UPDATE dynaduck.columns SET type = 'DECIMAL(38,2)' WHERE attribute = 'sk'"
    )
    bench.copy.put("a", 1)
    bench.copy.put("a", 2)
    assert bench.run().equal == 2


def test_a_key_that_its_column_cannot_hold_is_missing() -> None:
    """It is no error and no match with the key that rounding would make of it."""
    bench = Bench({"pk": {"S": "a"}, "sk": {"N": "1.4"}}, {"pk": {"S": "a"}, "sk": {"N": "1E30"}})
    bench.copy.put("a", 1)
    report = bench.run(Rules(max_rounds=1))
    assert (report.missing, report.ghosts) == (2, 1)


def test_binary_keys_are_looked_up_by_their_bytes() -> None:
    """A key of bytes matches by bytes, whatever they would mean as text."""
    schema = (KeyAttribute("k", "B", "HASH"),)
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t(k BLOB); INSERT INTO t VALUES ('\\x00\\x27\\xFF'::BLOB)")
    connection.execute(
        "CREATE SCHEMA dynaduck; CREATE TABLE dynaduck.columns AS"
        " SELECT 't' AS dataset, 'k' AS attribute, 'k' AS column_name, 'BLOB' AS type"
    )

    class Ask:
        is_live = True

        def __call__(self, query: str) -> Answer:
            return Answer(connection.sql(query).to_arrow_table(), None)

    replica = SqlReplica("t", schema, Ask())
    wanted = [{"k": {"B": base64.b64encode(raw).decode()}} for raw in (b"\x00'\xff", b"\x00")]
    assert list(replica.rows(replica.columns(), wanted)) == [{"k": b"\x00'\xff"}]


def test_transient_errors_are_survived_and_others_are_not() -> None:
    """A throttled page is read again; a denied one ends the comparison with its own sentence."""
    bench = Bench(item("a", 1))
    bench.copy.put("a", 1)
    bench.source.failures = [Throttled("slow down"), Throttled("slow down")]
    assert bench.run().equal == 1
    bench.source.failures = [AccessDenied("no", action="dynamodb:Scan")]
    with pytest.raises(AccessDenied):
        bench.run()


def test_read_capacity_is_kept_to() -> None:
    """At 1 unit a second ten pages of one unit take time, without a limit they take none."""
    bench = Bench(*(item("a", n) for n in range(30)))
    for n in range(30):
        bench.copy.put("a", n)
    bench.run(Rules(total_segments=1, max_rcu=1.0))
    assert bench.clock.now_s >= 8


def test_the_ledger_finds_keys_of_the_copy_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys in the copy and not in the source come once each, whatever was written to disk when."""
    monkeypatch.setattr(ledger_module, "_KEYS_PER_INSERT", 2)
    with KeyLedger() as ledger:
        directory = ledger.directory
        ledger.add_source(["a", "b", "c"])
        ledger.add_copy(["a", "x"])
        ledger.add_copy(["x", "y\x00'"])
        assert sorted(ledger.only_in_copy()) == ["x", "y\x00'"]
        assert directory.exists()
    assert not directory.exists()


def test_a_file_is_read_with_what_its_checkpoints_cover(tmp_path: Path) -> None:
    """Without a service the copy covers what its unfinished shards say; one silent: nothing."""
    path = tmp_path / "replica.duckdb"
    connection = duckdb.connect(str(path))
    connection.execute(
        "CREATE SCHEMA dynaduck; CREATE TABLE dynaduck.checkpoints"
        "(dataset VARCHAR, state VARCHAR, covered_until TIMESTAMPTZ);"
        "INSERT INTO dynaduck.checkpoints VALUES ('t', 'idle', '1970-01-01 00:00:05+00'),"
        " ('t', 'finished', '1970-01-01 00:00:01+00'), ('other', 'idle', NULL)"
    )
    connection.close()
    database = Database.open(path, memory_limit_bytes=100_000_000, read_only=True)
    ask = FileAsk(database, "t")
    assert (ask.is_live, ask("SELECT 1 AS one").covered_until_ms) == (False, 5000)
    assert ask("SELECT 1 AS one").table.to_pylist() == [{"one": 1}]
    assert FileAsk(database, "other")("SELECT 1 AS one").covered_until_ms is None
    database.close()


def test_the_as_of_header_is_read_with_its_zone() -> None:
    """An instant with a zone; anything else says nothing rather than something wrong."""
    assert parse_as_of("1970-01-01T00:00:05.250Z") == 5250
    assert parse_as_of("1970-01-01T01:00:05+01:00") == 5000
    assert parse_as_of("1970-01-01T00:00:05") is None
    assert parse_as_of("") is None
    assert parse_as_of("yesterday") is None
    assert parse_as_of(None) is None
