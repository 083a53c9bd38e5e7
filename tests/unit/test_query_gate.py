"""What the gate lets through, and what it stops, on whichever DuckDB is installed."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from accelerator import gate_rules as rules
from accelerator.database import Database
from accelerator.gate import admit, parameter_names
from accelerator.query_errors import QueryError, QueryRejected
from accelerator.relations import columns_only
from tests.hostile import GATED, REFUSED, label
from tests.query_builder import data_file, fingerprint, rows_of, runner

VISIBLE = {"orders": "orders", "odd name": "Odd name"}

HARMLESS = [
    "SELECT 1",
    "select * from orders",
    "SELECT * FROM Orders;",
    "FROM orders",
    "FROM main.orders SELECT id",
    "TABLE orders",
    "SELECT replica.main.orders.id FROM replica.main.orders",
    "FROM REPLICA.dynaduck.datasets SELECT dataset",
    "VALUES (1, 'a'), (2, 'b')",
    "(SELECT 1)",
    'SELECT "select", "a b" FROM "Odd name"',
    "SELECT count(*) FROM orders -- a comment; with a semicolon",
    "/* DROP TABLE x; */ SELECT ';' AS text",
    "SELECT $$COPY TO$$ AS text",
    "SELECT id, sum(total) OVER (ORDER BY id) FROM orders",
    "SELECT id % 3 AS k, count(*) FILTER (WHERE id > 5) FROM orders GROUP BY ALL ORDER BY ALL",
    "SELECT DISTINCT ON (id % 3) * FROM orders",
    "SELECT * EXCLUDE (doc) REPLACE (id + 1 AS id) FROM orders LIMIT 10 OFFSET 5",
    "SELECT COLUMNS(lambda c: c LIKE '%a%') FROM orders",
    "SELECT COLUMNS('i.*') FROM orders",
    "SELECT doc->'a'->>'b', doc->>'$.a.b' FROM orders",
    "SELECT list_transform([1, 2], lambda x: x + 1)",
    "SELECT [x * 2 FOR x IN [1, 2, 3] IF x > 1]",
    "SELECT {'a': 1, 'b': [1, 2]}, MAP {'k': 'v'}",
    "SELECT unnest([1, 2, 3]), unnest(range(5))",
    "SELECT * FROM range(1000000) WHERE range % 250000 = 0",
    "SELECT * FROM generate_series(DATE '2026-01-01', DATE '2026-02-01', INTERVAL 1 DAY)",
    "SELECT unnest(generate_series(min(made), max(made), INTERVAL 1 DAY)) FROM orders",
    "SELECT e.* FROM orders, json_each(doc) e LIMIT 3",
    "SELECT o.id, t.* FROM orders o, LATERAL (SELECT o.id * 2 AS twice) t LIMIT 3",
    "SELECT * FROM orders a JOIN orders b USING (id) ASOF JOIN orders c ON a.id >= c.id LIMIT 3",
    "SELECT * FROM orders a POSITIONAL JOIN orders b LIMIT 3",
    "SELECT * FROM orders WHERE id IN (SELECT max(id) FROM orders)",
    "SELECT * FROM orders WHERE id = ANY ([1, 2])",
    "SELECT EXISTS (FROM orders WHERE id = 7)",
    "WITH x AS (SELECT 1 AS a), y AS MATERIALIZED (FROM x) SELECT * FROM x, y",
    "WITH x AS NOT MATERIALIZED (FROM orders) SELECT * FROM x a JOIN x b USING (id) LIMIT 3",
    "WITH orders AS (SELECT 1 AS mine) FROM orders",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) FROM r",
    "SELECT 1 AS a, a + 1 AS b, a + b AS c",
    "FROM orders UNION ALL BY NAME FROM orders LIMIT 3",
    "SELECT id FROM orders EXCEPT SELECT 1 INTERSECT SELECT 2",
    "SELECT id, grouping(id) FROM orders WHERE id < 3 GROUP BY ROLLUP (id) ORDER BY ALL",
    "FROM orders USING SAMPLE 3 ROWS",
    "SELECT * FROM orders TABLESAMPLE 1 PERCENT",
    "PIVOT (SELECT id % 3 AS k, total FROM orders) ON k USING sum(total)",
    "PIVOT (SELECT id % 3 AS k, total FROM orders) ON k IN (0, 1) USING sum(total)",
    "FROM (PIVOT (SELECT id % 3 AS k, total FROM orders) ON k USING sum(total)) SELECT *",
    "FROM (SELECT id % 2 AS k, total FROM orders) PIVOT (sum(total) FOR k IN (0, 1))",
    "PIVOT dynaduck.checkpoints ON state USING count(*) GROUP BY dataset",
    "UNPIVOT (SELECT 1 AS a, 2 AS b) ON a, b INTO NAME n VALUE v",
    "DESCRIBE orders",
    "DESCRIBE SELECT 1 AS a",
    "SUMMARIZE orders",
    "SHOW TABLES",
    "SELECT * FROM dynaduck.datasets",
    "SELECT * FROM dynaduck.checkpoints",
    "SELECT * FROM dynaduck.snapshot_segments",
    "SELECT * FROM dynaduck.columns",
    "SELECT * FROM dynaduck.gaps",
    "SELECT * FROM dynaduck.dead_letters",
    "SELECT * FROM runtime.task_history",
    "SELECT table_name FROM information_schema.tables",
    "SELECT column_name FROM information_schema.columns WHERE table_name = 'orders'",
    "SELECT lpad(id::VARCHAR, 8, '0'), repeat('-', 10), format('{:>8}', name) FROM orders LIMIT 3",
    "SELECT repeat('x', least(id, 100)) FROM orders LIMIT 3",
    "SELECT repeat('x', least(id, 10, 1000000000)) FROM orders LIMIT 3",
    "SELECT repeat('x', -(-5)), repeat('x', 2 * 3 - 1), repeat('x', 7 % 4 + 2)",
    "SELECT " + ", ".join(["(SELECT max(id) FROM range(3) t(id))"] * 15),
    "SELECT " + ", ".join(["list_transform([1], lambda x: x)"] * 20),
    "SELECT " + ", ".join(["doc->>'a'"] * 40) + " FROM orders LIMIT 3",
    "SELECT printf('%05.2f', 1.5)",
    "SELECT now() > TIMESTAMPTZ '2020-01-01', current_date IS NOT NULL, random() < 2",
    "SELECT CASE WHEN id > 5 THEN 'big' ELSE 'small' END, coalesce(name, '') FROM orders LIMIT 3",
    "SELECT TRY_CAST(name AS INTEGER), try(1 / 0) FROM orders LIMIT 3",
    "SELECT name COLLATE NOCASE FROM orders ORDER BY name COLLATE NOCASE LIMIT 3",
    "SELECT regexp_extract(name, '(\\d+)', 1), name SIMILAR TO 'name.*' FROM orders LIMIT 3",
    "SELECT histogram(id % 3), approx_quantile(id, 0.5), arg_max(name, id) FROM orders",
    "SELECT strftime(made, '%Y'), date_trunc('month', made), year(made) FROM orders LIMIT 3",
    "SELECT id FROM orders QUALIFY row_number() OVER (ORDER BY id) <= 3",
    "SELECT * FROM orders WHERE id IN (" + ", ".join(map(str, range(5_000))) + ") LIMIT 3",
]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with data_file(tmp_path_factory.mktemp("gate")) as opened:
        yield opened


@pytest.mark.parametrize("sql", REFUSED, ids=label)
def test_hostile_statements_do_not_run(database: Database, sql: str) -> None:
    """None of an attacker's statements gives a row; each is refused by an error of ours."""
    with runner(database, timeout_s=30) as (queries, reports):
        with pytest.raises(QueryError) as refused:
            rows_of(queries, sql)
        assert refused.value.code in ("rejected", "failed")
        assert str(refused.value)
        assert queries.running == 0
    assert [report.outcome for report in reports] == [refused.value.code]


@pytest.mark.parametrize("sql", GATED, ids=label)
def test_the_gate_alone_refuses_them(database: Database, sql: str) -> None:
    """No other wall is needed: the statement is refused before DuckDB plans it."""
    cursor = database.cursor()
    with pytest.raises(QueryError):
        admit(cursor, sql, VISIBLE)
    cursor.close()


def test_hostile_statements_leave_no_trace(database: Database) -> None:
    """After all of them every table, view, setting and attached database is as it was."""
    before = fingerprint(database)
    with runner(database, timeout_s=30) as (queries, _):
        for sql in REFUSED:
            with pytest.raises(QueryError):
                rows_of(queries, sql)
        assert rows_of(queries, "SELECT count(*) FROM orders") == [(1000,)]
    assert fingerprint(database) == before


@pytest.mark.parametrize("sql", HARMLESS, ids=label)
def test_harmless_statements_run(database: Database, sql: str) -> None:
    """What people write to look at data is let through: the gate is no reason to go elsewhere."""
    with runner(database, timeout_s=30) as (queries, _):
        rows_of(queries, sql)


def test_every_volatile_function_was_looked_at(database: Database) -> None:
    """A new DuckDB with a new function that acts fails here, not in production."""
    cursor = database.cursor()
    found = cursor.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE "
        "(stability = 'VOLATILE' OR has_side_effects) AND function_type = 'scalar'"
    ).fetchall()
    cursor.close()
    volatile = {name for (name,) in found}
    assert "nextval" in volatile
    assert volatile - rules.DENIED_FUNCTIONS == volatile & rules.ALLOWED_VOLATILE_FUNCTIONS


def test_only_listed_table_functions_pass(database: Database) -> None:
    """Of all table functions of this DuckDB, those that are not listed are refused one by one."""
    cursor = database.cursor()
    found = cursor.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() "
        "WHERE function_type IN ('table', 'table_macro', 'pragma')"
    ).fetchall()
    names = {name for (name,) in found} - rules.ALLOWED_TABLE_FUNCTIONS
    assert len(names) > 90
    for name in sorted(names):
        for sql in (f'SELECT * FROM "{name}"()', f"SELECT * FROM main.\"{name}\"('x')"):
            with pytest.raises(QueryRejected):
                admit(cursor, sql, VISIBLE)
    cursor.close()


@pytest.mark.parametrize("name", sorted(rules.DENIED_FUNCTIONS))
def test_denied_functions_are_refused_in_every_spelling(database: Database, name: str) -> None:
    """Upper case, quotes, a schema, method calls and nesting hide no function."""
    cursor = database.cursor()
    for sql in (
        f"SELECT {name}()",
        f"SELECT {name.upper()}(1)",
        f'SELECT "{name}"(1)',
        f"SELECT main.{name}(1)",
        f"SELECT (1).{name}()",
        f"SELECT abs(CASE WHEN true THEN {name}(1) END)",
        f"SELECT list_transform([1], lambda x: {name}(x))",
        f"SELECT 1 WHERE {name}(1) IS NULL",
        f"SELECT sum({name}(1)) OVER () FROM orders",
        f"PIVOT orders ON id USING max({name}(1))",
    ):
        with pytest.raises(QueryError):
            admit(cursor, sql, VISIBLE)
    cursor.close()


def test_names_of_duckdbs_own_views_are_never_datasets(database: Database) -> None:
    """A dataset that is called like a catalogue view does not open the way to that view."""
    cursor = database.cursor()
    for name in ("duckdb_settings", "pg_class", "sqlite_master", "pragma_database_list"):
        with pytest.raises(QueryRejected):
            admit(cursor, f"FROM {name}", {name: name})
    cursor.close()


def test_a_pivot_by_words_is_judged_strictly(database: Database) -> None:
    """What its words leave unclear is refused, and the way to be clear is said."""
    cursor = database.cursor()
    for sql in (
        "PIVOT (SELECT id AS dynaduck FROM orders) ON dynaduck USING count(*)",
        "PIVOT orders ON id USING count(*) -- comment",
        "PIVOT orders ON id /* comment */ USING count(*)",
        "PIVOT (SELECT 'a\\b' AS k) ON k USING count(*)",
        "PIVOT (SELECT $$a$$ AS k) ON k USING count(*)",
        "PIVOT (SELECT 'x;y' AS k) ON k USING count(*)",
        "PIVOT (SELECT 'insert' AS k) ON k USING count(*)",
        "PIVOT (SELECT repeat('x', 2) AS k) ON k USING count(*)",
    ):
        with pytest.raises(QueryRejected) as refused:
            admit(cursor, sql, VISIBLE)
        assert "IN (" in refused.value.hint
    for sql in (
        "PIVOT orders ON id USING count(*);",
        "PIVOT (SELECT id AS query FROM orders) ON query USING count(*)",
        'PIVOT (SELECT id AS "stats" FROM orders) ON "stats" USING count(*)',
    ):
        admit(cursor, sql, VISIBLE)
    cursor.close()


def test_the_verdict_names_the_datasets(database: Database) -> None:
    """Freshness is told of what a query reads, by the names the datasets have."""
    cursor = database.cursor()
    cases = {
        "SELECT 1": set(),
        "FROM ORDERS": {"orders"},
        'FROM "odd name" a JOIN orders b ON true': {"Odd name", "orders"},
        "WITH orders AS (SELECT 1) FROM orders": set(),
        "FROM dynaduck.datasets": set(),
        "PIVOT orders ON id USING count(*)": {"orders"},
        "SELECT (SELECT max(id) FROM orders)": {"orders"},
    }
    for sql, relations in cases.items():
        assert admit(cursor, sql, VISIBLE).relations == relations, sql
    cursor.close()


@pytest.mark.parametrize(
    ("sql", "parameters", "is_refused"),
    [
        ("SELECT repeat('x', $1)", [10], False),
        ("SELECT repeat('x', ?)", [10**9], True),
        ("SELECT repeat('x', $n)", {"n": 10**9}, True),
        ("SELECT repeat('x', $n * 1000)", {"n": 1000}, True),
        ("SELECT range($1)", [10**9], True),
        ("SELECT format($1, 1)", ["{:1000000000}"], True),
        ("SELECT repeat('x', $1)", [None], True),
    ],
)
def test_parameters_are_sizes_too(
    database: Database, sql: str, parameters: object, is_refused: bool
) -> None:
    """A size that comes as a parameter is bounded like one that is written out."""
    cursor = database.cursor()
    if is_refused:
        with pytest.raises(QueryRejected):
            admit(cursor, sql, VISIBLE, parameters)  # type: ignore[arg-type]
    else:
        admit(cursor, sql, VISIBLE, parameters)  # type: ignore[arg-type]
    cursor.close()


def test_refusals_say_what_to_do(database: Database) -> None:
    """An honest user who meets the gate learns the way around it."""
    cursor = database.cursor()
    for sql, words in {
        "FROM ordres": "SHOW TABLES",
        "SELECT range(1000000)": "FROM range",
        "SELECT repeat('x', id) FROM orders": "least",
        "PIVOT (SELECT repeat('x', 3) AS s) ON s USING count(*)": "IN (",
        "SELECT 1; SELECT 2": "One SELECT",
    }.items():
        with pytest.raises(QueryRejected) as refused:
            admit(cursor, sql, VISIBLE)
        assert words in refused.value.hint
    cursor.close()


def test_a_connection_of_its_own_parses(database: Database) -> None:
    """The gate needs a parser only: no data, no transaction, no file."""
    parser = duckdb.connect()
    assert admit(parser, "FROM orders", VISIBLE).relations == {"orders"}
    parser.close()


RUN_AWAY = [
    "SELECT * FROM orders WHERE name LIKE '%_a%_a%_a%_a%_b'",
    "SELECT * FROM orders WHERE name NOT ILIKE '%_a%_a%_a%_b'",
    "SELECT * FROM orders WHERE name LIKE '%_a%_a%_a%_b' ESCAPE '!'",
    "SELECT * FROM orders WHERE name GLOB '*a*a*a*b'",
    "SELECT * FROM orders WHERE name LIKE $1",
    "SELECT * FROM orders WHERE name LIKE name",
    "SELECT * FROM orders WHERE name LIKE (SELECT max(name) FROM orders)",
]


@pytest.mark.parametrize("sql", RUN_AWAY)
def test_patterns_that_run_away_are_refused_where_they_do(database: Database, sql: str) -> None:
    """On 1.5 a LIKE can run for minutes, deaf to interrupts; on 2.0 it does not."""
    cursor = database.cursor()
    if duckdb.__version__.startswith("1."):
        with pytest.raises(QueryRejected, match="pattern"):
            admit(cursor, sql, VISIBLE, ["%_a%_a%_a%_a%_b"])
    else:
        admit(cursor, sql, VISIBLE, ["%_a%_a%_a%_a%_b"])
    cursor.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM orders WHERE name LIKE '%a%b%c%d%e%f%'",
        "SELECT * FROM orders WHERE name LIKE '%_id%'",
        "SELECT * FROM orders WHERE name ILIKE 'na_e%'",
        "SELECT * FROM orders WHERE name GLOB 'n*[0-9]'",
        "SELECT * FROM orders WHERE name LIKE $1",
        "SELECT repeat(name, 1000), lpad(name, 100), rpad(name, 100) FROM orders",
        "SELECT list_transform(range(1000), lambda x: x || '-' || x)",
        "SELECT a || b || c FROM (SELECT name || id AS a, name AS b, 'x' AS c FROM orders)",
        "SELECT replace(replace(replace(name, '&', '&amp;'), '<', '&lt;'), '\"', '') FROM orders",
        "SELECT " + " UNION ALL SELECT ".join(["lpad('a', 30)"] * 20),
        "SELECT " + ", ".join(f"lpad(name, {n})" for n in range(10, 60)) + " FROM orders",
        "SELECT " + " + ".join(["id"] * 200) + " FROM (SELECT id + id + id AS id FROM orders)",
        "SELECT (SELECT max(id) FROM orders WHERE id < (SELECT max(id) FROM orders))",
    ],
)
def test_ordinary_sizes_are_no_matter(database: Database, sql: str) -> None:
    """What people build from texts and lists stays far below the bounds."""
    cursor = database.cursor()
    admit(cursor, sql, VISIBLE, ["%abc%"])
    cursor.close()


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT ?, i FROM t WHERE i = ? LIMIT ?", ("1", "2", "3")),
        ("SELECT $2, $1, $10, $3", ("1", "2", "3", "10")),
        ("SELECT $b, (SELECT $a WHERE EXISTS (SELECT $b))", ("a", "b")),
        ("SELECT '?', \"?\" -- $1", ()),
        ("PIVOT orders ON id USING sum(1)", ()),
    ],
)
def test_parameters_are_named_in_their_order(
    database: Database, sql: str, names: tuple[str, ...]
) -> None:
    """As the parser sees them, wherever they stand in the statement."""
    cursor = database.cursor()
    assert parameter_names(cursor, sql) == names
    cursor.close()


def test_a_text_too_deep_to_parse_is_asked_for_no_parameters(database: Database) -> None:
    """What takes the parser minutes is refused before it is parsed, here too."""
    cursor = database.cursor()
    with pytest.raises(QueryRejected):
        parameter_names(cursor, "SELECT " + "(" * 20_000)
    cursor.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, 1 AS a, 2 AS a FROM orders -- the end",
        "FROM orders ; ;\n",
        "VALUES (1)",
        "WITH x AS (SELECT 1 AS a) FROM x ORDER BY a LIMIT 5",
        "DESCRIBE orders",
        "SHOW TABLES",
        "SELECT count(*) FROM range(1000000000) a, range(1000000) b",
    ],
)
def test_columns_cost_no_execution(database: Database, sql: str) -> None:
    """The same columns, no rows, and no time, whatever the statement itself would take."""
    with runner(database, timeout_s=30) as (queries, _):
        query = queries.open(columns_only(sql))
        query.start()
        assert query.schema.names
        assert query.next_batch() is None
