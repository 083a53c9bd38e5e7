"""Verdicts that are remembered, but never past the catalogue and parameters they follow from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from accelerator import gate_rules as rules
from accelerator.database import Database
from accelerator.freshness import Freshness
from accelerator.gate import Parameters, judge, serialized
from accelerator.query import QueryLimits, QueryRunner
from accelerator.query_errors import QueryError, QueryFailed, QueryRejected
from accelerator.verdicts import Verdicts
from tests.hostile import REFUSED, label
from tests.query_builder import data_file, fingerprint, rows_of, runner
from tests.unit.test_query_gate import HARMLESS, RUN_AWAY


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with data_file(tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Database, QueryRunner]]:
    """A runner that has seen all the harmless statements, and those of attackers twice."""
    with data_file(tmp_path_factory.mktemp("warm")) as opened:
        queries = QueryRunner(opened, QueryLimits(timeout_s=30))
        for sql in [*HARMLESS, *HARMLESS]:
            rows_of(queries, sql)
        for sql in [*REFUSED, *REFUSED]:
            with pytest.raises(QueryError):
                rows_of(queries, sql)
        yield opened, queries
        queries.close()


@pytest.mark.parametrize("sql", REFUSED, ids=label)
def test_hostile_statements_do_not_run_when_all_is_remembered(
    warm: tuple[Database, QueryRunner], sql: str
) -> None:
    """What an attacker asked before, and what others ask, opens no way."""
    _, queries = warm
    with pytest.raises(QueryError) as refused:
        rows_of(queries, sql)
    assert refused.value.code in ("rejected", "failed")


def test_hostile_statements_leave_no_trace_when_all_is_remembered(
    warm: tuple[Database, QueryRunner],
) -> None:
    """The data file is the same after all of them, and harmless statements run as before."""
    opened, queries = warm
    before = fingerprint(opened)
    for sql in REFUSED:
        with pytest.raises(QueryError):
            rows_of(queries, sql)
    for sql in HARMLESS:
        rows_of(queries, sql)
    assert fingerprint(opened) == before


@pytest.mark.parametrize("sql", [*HARMLESS, *RUN_AWAY])
def test_a_remembered_verdict_is_the_verdict(database: Database, sql: str) -> None:
    """Whether it is judged for the first time or the fifth, it is the same."""
    verdicts, cursor = Verdicts(), database.cursor()
    values = ["%a%"] if "$1" in sql else None

    def verdict() -> object:
        try:
            return verdicts.admit(cursor, sql, values).verdict.relations
        except QueryRejected as error:
            return str(error)

    first = verdict()
    assert [verdict() for _ in range(4)] == [first] * 4
    cursor.close()


def test_what_was_judged_once_needs_no_second_look(database: Database) -> None:
    """The parse and the names are what a small query costs most; both are done once."""
    verdicts, cursor = Verdicts(), database.cursor()
    for _ in range(2):
        verdicts.admit(cursor, "FROM orders")
    cursor.close()
    # A closed cursor cannot be asked anything.
    admission = verdicts.admit(cursor, "FROM orders")
    assert admission.is_remembered
    assert admission.verdict.relations == {"orders"}


def test_a_dataset_that_is_gone_is_refused_as_if_it_had_never_been(database: Database) -> None:
    """A verdict does not outlive the view that it names."""
    with runner(database) as (queries, _):
        for _ in range(3):
            rows_of(queries, "SELECT count(*) FROM orders")
        with database.transaction() as writer:
            writer.execute("DROP VIEW orders")
        for sql in ("SELECT count(*) FROM orders", "SELECT 7 FROM orders"):
            with pytest.raises(QueryRejected, match="no dataset"):
                rows_of(queries, sql)


def test_a_dataset_that_is_renamed_answers_to_its_new_name_alone(database: Database) -> None:
    """The old name is refused at once, the new one found at once."""
    with runner(database) as (queries, _):
        for _ in range(3):
            rows_of(queries, "SELECT count(*) FROM orders")
            with pytest.raises(QueryRejected):
                rows_of(queries, "SELECT count(*) FROM bought")
        with database.transaction() as writer:
            writer.execute("ALTER VIEW orders RENAME TO bought")
        assert rows_of(queries, "SELECT count(*) FROM bought") == [(1000,)]
        with pytest.raises(QueryRejected, match="no dataset"):
            rows_of(queries, "SELECT count(*) FROM orders")


def test_a_dataset_that_is_added_is_found_at_once(database: Database) -> None:
    """No refusal is remembered; a PIVOT that is judged by its words names it too."""
    pivot = "PIVOT late ON id USING count(*)"
    with runner(database) as (queries, _):
        for _ in range(3):
            with pytest.raises(QueryRejected):
                rows_of(queries, "FROM late")
            with pytest.raises(QueryError):
                rows_of(queries, pivot)
        with database.transaction() as writer:
            writer.execute("CREATE VIEW late AS SELECT 5 AS id")
        assert rows_of(queries, "FROM late") == [(5,)]
        assert rows_of(queries, pivot) == [(1,)]
        with queries.open("FROM late JOIN orders USING (id)") as query:
            query.start()
            assert query.freshness.state == "Ready"


def test_a_name_in_another_case_has_the_freshness_of_the_dataset(database: Database) -> None:
    """A view that is made anew as `Orders` is the same dataset to SQL, remembered or not."""
    live = {"orders": Freshness("Lagging", 5)}
    queries = QueryRunner(database, QueryLimits(), live=lambda: live)
    for _ in range(3):
        rows_of(queries, "FROM orders LIMIT 1")
    with database.transaction() as writer:
        writer.execute('ALTER VIEW orders RENAME TO "interim"')
        writer.execute('ALTER VIEW "interim" RENAME TO "ORDERS"')
    live = {"ORDERS": Freshness("Error", 7)}
    with queries.open("FROM orders LIMIT 1") as query:
        query.start()
        assert query.freshness == Freshness("Error", 7)
    queries.close()


@pytest.mark.parametrize(
    ("sql", "fine", "bad"),
    [
        ("SELECT repeat('x', $1)", [10], [10**9]),
        ("SELECT repeat('x', $1)", [10], [None]),
        ("SELECT repeat('x', $1)", [10], None),
        ("SELECT repeat('x', $n * 1000)", {"n": 1}, {"n": 1000}),
        ("SELECT range($1)", [10], [10**9]),
        ("SELECT format($1, 1)", ["{}"], ["{:1000000000}"]),
        ("SELECT replace(replace(name, 'a', $1), 'b', $1) FROM orders", ["xy"], ["x" * 10_000]),
    ],
)
def test_another_value_of_a_parameter_is_judged_anew(
    database: Database, sql: str, fine: Parameters, bad: Parameters
) -> None:
    """A size that was small a hundred times is looked at the next time too."""
    verdicts, cursor = Verdicts(), database.cursor()
    for _ in range(3):
        verdicts.admit(cursor, sql, fine)
    with pytest.raises(QueryRejected):
        verdicts.admit(cursor, sql, bad)
    assert verdicts.admit(cursor, sql, fine).verdict.by_parameters
    cursor.close()


def test_a_bound_in_the_text_holds_for_every_value(database: Database) -> None:
    """least(10, …) is no larger for a parameter that is huge, or not known."""
    verdicts, cursor = Verdicts(), database.cursor()
    sql = "SELECT repeat('x', least(10, $1))"
    values: list[Parameters] = [[1], [10**9], None]
    for value in values:
        assert verdicts.admit(cursor, sql, value).verdict.by_parameters
    cursor.close()


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("SELECT format(NULL, 1)", None),
        ("SELECT format($1, 1)", [None]),
        ("SELECT 'a' LIKE NULL", None),
        ("SELECT 'a' LIKE $1", [None]),
    ],
)
def test_null_is_no_pattern(database: Database, sql: str, values: Parameters) -> None:
    """It makes the result NULL, and drivers describe statements with it. LIKE is bound on 1.5."""
    with runner(database) as (queries, _), queries.open(sql, values) as query:
        query.start()
        [batch] = query.batches()
        assert batch.column(0).to_pylist() == [None]


def test_a_verdict_says_whether_a_parameter_had_a_say(database: Database) -> None:
    """Only one that looked at no value may stand for every value."""
    cursor = database.cursor()
    for sql, has_a_say in {
        "SELECT 1": False,
        "SELECT repeat('x', 5)": False,
        "SELECT * FROM orders WHERE id = $1": True,
        "SELECT repeat('x', $n)": True,
    }.items():
        verdict = judge(serialized(cursor, sql), {"orders": "orders"}, {"1": 1, "n": 1})
        assert verdict is not None
        assert verdict.by_parameters is has_a_say, sql
    cursor.close()


def test_what_is_remembered_is_bounded_by_bytes(database: Database) -> None:
    """Texts that all differ push the oldest out; a huge one is not kept at all."""
    verdicts, cursor = Verdicts(most_bytes=40_000), database.cursor()
    for n in range(500):
        verdicts.admit(cursor, f"SELECT id FROM orders WHERE id = {n}")
        assert verdicts.nbytes <= 40_000
    assert verdicts.nbytes > 20_000
    before = verdicts.nbytes
    huge = "SELECT '" + "x" * 3_000 + "'"
    for _ in range(2):
        verdicts.admit(cursor, huge)
    assert verdicts.nbytes == before
    cursor.close()


def test_an_error_of_duckdb_stays_what_it_is(database: Database) -> None:
    """A column that does not exist is no matter of the gate, however often it is asked for."""
    with runner(database) as (queries, _):
        for _ in range(4):
            with pytest.raises(QueryFailed):
                rows_of(queries, "SELECT nothing FROM orders")


def test_no_view_of_duckdb_has_a_name_that_a_dataset_may_be_asked_by(database: Database) -> None:
    """A name that the gate remembers and that is gone is therefore found by nobody."""
    cursor: duckdb.DuckDBPyConnection = database.cursor()
    names = [
        name
        for (name,) in cursor.execute(
            "SELECT view_name FROM duckdb_views() WHERE internal "
            "UNION SELECT table_name FROM duckdb_tables() WHERE internal"
        ).fetchall()
        if not name.startswith(rules.HIDDEN_RELATION_PREFIXES)
    ]
    assert names
    for name in names:
        with pytest.raises(duckdb.CatalogException):
            cursor.execute(f'FROM "{name}"')
        with pytest.raises(duckdb.CatalogException):
            cursor.execute(f'FROM main."{name}"')
    cursor.close()
