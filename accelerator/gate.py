"""The gate: what of a user's SQL may run, decided on the parsed tree before anything runs.

Owns the decision and nothing else: it opens no transaction and executes no user text. DuckDB
itself parses (`json_serialize_sql`), so what is judged is what will be executed. The tree is walked
with default deny: a kind of node, relation or table function that is not known here is refused.
The gate is one of several walls: the query also runs in a READ ONLY transaction, on an instance
whose external access is off and whose configuration is locked.

One form escapes the tree: PIVOT without an IN list becomes several statements, which DuckDB does
not serialize. Its text is judged word by word instead, more strictly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import duckdb

from accelerator import gate_rules as rules
from accelerator.growth import Sizes
from accelerator.query_errors import QueryFailed, QueryRejected

Node = dict[str, Any]
Scope = Mapping[str, int]
Parameters = Sequence[Any] | Mapping[str, Any] | None


class Parser(Protocol):
    """A DuckDB connection; only json_serialize_sql and extract_statements are used."""

    def execute(self, query: str, parameters: object = None) -> Any: ...

    def extract_statements(self, query: str) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an admitted query touches: names of `visible` relations as given there.

    by_parameters   whether the value of a parameter was looked at: others may be refused
    """

    relations: frozenset[str]
    by_parameters: bool = False


def admit(
    parser: Parser, sql: str, visible: Mapping[str, str], parameters: Parameters = None
) -> Verdict:
    """Lets one harmless SELECT pass.

    `visible` maps lower-cased names of the datasets' views to their real names. `parameters` are
    looked at where they say how large something becomes.

    Raises:
        QueryRejected: the statement is not allowed
        QueryFailed: it is not SQL
    """
    verdict = judge(serialized(parser, sql), visible, parameters)
    return _admit_pivot(parser, sql, visible) if verdict is None else verdict


def serialized(parser: Parser, sql: str) -> str:
    """What DuckDB's parser makes of the text, as JSON; it depends on the text alone.

    Raises:
        QueryRejected: it is too long or too deep to be parsed
        QueryFailed: it is no valid text
    """
    _check_text(sql)
    # All of it is fetched: DuckDB 2 refuses the next statement while a result is unfinished.
    rows = parser.execute("SELECT json_serialize_sql(CAST(? AS VARCHAR))", [sql]).fetchall()
    return str(rows[0][0])


def judge(parsed: str, visible: Mapping[str, str], parameters: Parameters = None) -> Verdict | None:
    """The verdict on what `serialized` gave; None where only the text itself can be judged.

    Raises:
        QueryRejected: the statement is not allowed
        QueryFailed: it is not SQL
    """
    tree = _tree(parsed)
    if tree is None:
        return None
    sizes = Sizes(parameters, patterns_run_away=duckdb.__version__.startswith("1."))
    walk = _Walk(visible, sizes)
    try:
        walk.statement(tree)
    except RecursionError:
        raise QueryRejected("The statement is nested too deeply.") from None
    return Verdict(frozenset(walk.relations), sizes.saw_parameters)


def parameter_names(parser: Parser, sql: str) -> tuple[str, ...]:
    """The names of a statement's parameters, `1`, `2`… where it says `?`; none of a PIVOT's.

    Judges nothing: what the statement may do is for `admit` to say.

    Raises:
        QueryRejected: it is too long or too deep to be parsed
        QueryFailed: it is not SQL
    """
    names: set[str] = set()
    rest: list[object] = [_tree(serialized(parser, sql))]
    while rest:
        part = rest.pop()
        if isinstance(part, dict):
            if part.get("class") == "PARAMETER":
                names.add(str(part.get("identifier")))
            rest += part.values()
        elif isinstance(part, list):
            rest += part
    return tuple(sorted(names, key=lambda name: (not name.isdigit(), len(name), name)))


def _check_text(sql: str) -> None:
    try:
        size = len(sql.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise QueryFailed("The statement is not valid Unicode.") from error
    if size > rules.MAX_TEXT_BYTES:
        raise QueryRejected(
            f"The statement has {size} bytes; {rules.MAX_TEXT_BYTES} are allowed.",
            hint="Pass long lists as a parameter.",
        )
    if "\0" in sql:
        raise QueryFailed("The statement contains a NUL character.")
    depth = deepest = 0
    for char in sql:
        if char in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in ")]}":
            depth -= 1
    if deepest > rules.MAX_OPEN_BRACKETS:
        raise QueryRejected("The statement is nested too deeply.")


_NOT_A_SELECT = "Only SELECT statements can be serialized"


def _tree(parsed: str) -> Node | None:
    """The tree of the only statement; None for a statement that DuckDB does not serialize."""
    try:
        answer = json.loads(parsed)
    except RecursionError:
        raise QueryRejected("The statement is nested too deeply.") from None
    if answer["error"]:
        message = str(answer.get("error_message", ""))
        if message.startswith(_NOT_A_SELECT):
            return None
        raise QueryFailed(f"This is not SQL that DuckDB can parse: {message}")
    statements = answer["statements"]
    if len(statements) != 1:
        raise _not_one(len(statements))
    return dict(statements[0]["node"])


def _not_one(count: int) -> QueryRejected:
    return QueryRejected(
        "There is no statement." if count == 0 else f"There are {count} statements; one may run."
    )


_QUERY_NODES = frozenset(
    {
        "SELECT_NODE",
        "SET_OPERATION_NODE",
        "RECURSIVE_CTE_NODE",
    }
)
_TABLE_REFS = frozenset(
    {
        "BASE_TABLE",
        "SUBQUERY",
        "JOIN",
        "TABLE_FUNCTION",
        "EXPRESSION_LIST",
        "EMPTY",
        "PIVOT",
        "SHOW_REF",
    }
)
# Sort orders and modifiers carry a type and no class.
_PLAIN = frozenset(
    {
        "ASCENDING",
        "DESCENDING",
        "ORDER_DEFAULT",
        "ORDER_MODIFIER",
        "LIMIT_MODIFIER",
        "LIMIT_PERCENT_MODIFIER",
        "DISTINCT_MODIFIER",
    }
)
_EXPRESSIONS = frozenset(
    {
        "BETWEEN",
        "CASE",
        "CAST",
        "COLLATE",
        "COLUMN_REF",
        "COMPARISON",
        "CONJUNCTION",
        "CONSTANT",
        "DEFAULT",
        "FUNCTION",
        "LAMBDA",
        "LAMBDA_REF",
        "OPERATOR",
        "PARAMETER",
        "POSITIONAL_REFERENCE",
        "STAR",
        "SUBQUERY",
        "TYPE",
        "WINDOW",
    }
)


@dataclass(slots=True)
class _Walk:
    """One pass over one tree.

    `scope` maps the CTE names that a reference can mean to their weight: how many relations such a
    reference adds to the plan (more than one only where the CTE is never materialized).
    """

    visible: Mapping[str, str]
    sizes: Sizes
    relations: set[str] = field(default_factory=set)
    nodes: int = 0
    selects: int = 0
    references: int = 0
    inlined: int = 0
    stars: int = 0
    lambdas: int = 0
    subqueries: int = 0

    def statement(self, root: Node) -> None:
        self._visit(root, {})
        self.sizes.check(root)

    def _visit(self, value: object, scope: Scope) -> None:
        if isinstance(value, list):
            for item in value:
                self._visit(item, scope)
        elif isinstance(value, dict):
            self._visit_node(value, scope)

    def _visit_node(self, node: Node, scope: Scope) -> None:
        self.nodes += 1
        if self.nodes > rules.MAX_NODES:
            raise QueryRejected("The statement has too many parts.")
        kind = node.get("type")
        if "cte_map" in node:
            scope = self._with_ctes(node, scope)
        if node.get("class") == "CONSTANT":
            return
        if isinstance(kind, str):
            self._check_kind(node, kind, scope)
        is_lambda = node.get("class") == "LAMBDA"
        is_subquery = node.get("class") == "SUBQUERY"
        self.lambdas += is_lambda
        self.subqueries += is_subquery
        self._check_lambdas(node)
        if self.subqueries > rules.MAX_SUBQUERY_DEPTH:
            raise QueryRejected(
                f"More than {rules.MAX_SUBQUERY_DEPTH} subqueries stand inside one another.",
                hint="Put the inner ones into a WITH clause.",
            )
        for key, child in node.items():
            if key == "function" and kind == "TABLE_FUNCTION":
                # The call is judged as a table function; only what it is given is walked.
                self._visit(list(child.values()), scope)
            elif key != "cte_map":
                self._visit(child, scope)
        self.lambdas -= is_lambda
        self.subqueries -= is_subquery

    def _check_lambdas(self, node: Node) -> None:
        if node.get("class") != "LAMBDA":
            return
        arrows = node.get("syntax_type", "SINGLE_ARROW") != "LAMBDA_KEYWORD"
        limit = rules.MAX_ARROW_CHAIN if arrows else rules.MAX_LAMBDA_DEPTH
        if self.lambdas > limit:
            raise QueryRejected(
                "Too many `->` or lambdas stand inside one another.",
                hint="Use one JSON path such as j->>'$.a.b.c' in place of a chain.",
            )

    def _with_ctes(self, node: Node, scope: Scope) -> Scope:
        """Visits the CTEs in their order, each seeing those before it, and itself if recursive."""
        for entry in node["cte_map"].get("map", ()):
            name = str(entry["key"]).lower()
            value = entry["value"]
            body = value.get("query_node") or (value.get("query") or {}).get("node") or {}
            is_recursive = body.get("type") == "RECURSIVE_CTE_NODE"
            before = self.inlined
            self._visit(value, {**scope, name: 1} if is_recursive else scope)
            is_inlined = value.get("materialized") == "CTE_MATERIALIZE_NEVER"
            scope = {**scope, name: max(1, self.inlined - before) if is_inlined else 1}
        return scope

    def _check_kind(self, node: Node, kind: str, scope: Scope) -> None:
        expression = node.get("class")
        if expression is not None:
            self._check_expression(node, str(expression))
        elif kind in _QUERY_NODES:
            self._check_query(node)
        elif kind == "BASE_TABLE":
            self._check_relation(node, scope)
        elif kind == "SHOW_REF":
            _check_show(node)
        elif kind == "TABLE_FUNCTION":
            self._check_table_function(node)
        elif kind not in _TABLE_REFS and kind not in _PLAIN and not kind.endswith("_TYPE_INFO"):
            raise QueryRejected(f"The statement does more than select ({_words(kind)}).")

    def _check_query(self, node: Node) -> None:
        self.selects += 1
        if self.selects > rules.MAX_SELECTS:
            raise QueryRejected(f"The statement has more than {rules.MAX_SELECTS} SELECTs.")
        if len(node.get("group_sets") or ()) > rules.MAX_GROUPING_SETS:
            raise QueryRejected(
                f"The statement has more than {rules.MAX_GROUPING_SETS} grouping sets."
            )
        self.sizes.expansion(node)

    def _check_expression(self, node: Node, expression: str) -> None:
        if expression not in _EXPRESSIONS:
            raise QueryRejected(f"The statement uses {_words(expression)}, which is not allowed.")
        if len(node.get("column_names") or ()) > rules.MAX_NAME_PARTS:
            raise QueryRejected("A column's name has too many parts.")
        if "function_name" in node:
            _check_function(node)
            self.sizes.function(node)
        elif expression == "STAR":
            self.stars += 1
            if self.stars > rules.MAX_STARS:
                raise QueryRejected(f"The statement has more than {rules.MAX_STARS} stars.")
        elif expression == "CAST":
            _check_type(node.get("type_expr") or node.get("cast_type"))

    def _count_reference(self) -> None:
        self.references += 1
        if self.references > rules.MAX_RELATIONS:
            raise QueryRejected(
                f"The statement reads from more than {rules.MAX_RELATIONS} relations."
            )

    def _check_table_function(self, node: Node) -> None:
        self._count_reference()
        call = node.get("function") or {}
        name = str(call.get("function_name", "")).lower()
        if name not in rules.ALLOWED_TABLE_FUNCTIONS:
            raise _function_refused(name)
        _check_qualifier(call, name)

    def _check_relation(self, node: Node, scope: Scope) -> None:
        self._count_reference()
        table = str(node.get("table_name", ""))
        schema = str(node.get("schema_name") or "").lower()
        name = table.lower()
        if str(node.get("catalog_name") or rules.CATALOG).lower() != rules.CATALOG:
            raise _relation_refused(table)
        if name in scope and schema in ("", "recurring") and not node.get("catalog_name"):
            self.inlined += scope[name]
            if self.inlined > rules.MAX_INLINED:
                raise QueryRejected("The CTEs of the statement expand to a huge plan.")
            return
        if schema in ("", "main") and name in self.visible and not _is_hidden(name):
            self.relations.add(self.visible[name])
        elif (schema, name) not in rules.SYSTEM_RELATIONS:
            raise _relation_refused(f"{schema}.{table}" if schema else table)


def _is_hidden(name: str) -> bool:
    return name.startswith(rules.HIDDEN_RELATION_PREFIXES)


def _check_show(node: Node) -> None:
    """DESCRIBE and SUMMARIZE hold a query that is walked; of the rest only SHOW TABLES passes."""
    if node.get("query") is not None:
        return
    if node.get("table_name") != '"tables"' or node.get("schema_name") or node.get("catalog_name"):
        raise QueryRejected(
            "Of the SHOW statements only SHOW TABLES and DESCRIBE of a dataset are allowed."
        )


def _check_function(node: Node) -> None:
    name = str(node["function_name"]).lower()
    if name in rules.DENIED_FUNCTIONS or name.startswith(rules.DENIED_FUNCTION_PREFIXES):
        raise _function_refused(name)
    _check_qualifier(node, name)


def _check_type(named: object) -> None:
    """Raises QueryRejected for a type that is denied, also as a part of another."""
    if isinstance(named, list):
        for part in named:
            _check_type(part)
    elif isinstance(named, dict):
        for part in named.values():
            _check_type(part)
    elif isinstance(named, str) and named.lower() in rules.DENIED_TYPES:
        raise QueryRejected(f"The type {named} is not allowed here.", hint="Use JSON.")


def _check_qualifier(node: Node, name: str) -> None:
    if node.get("catalog") or str(node.get("schema") or "main").lower() != "main":
        raise _function_refused(name)
    path = (node.get("qualified_name") or {}).get("path") or []
    if len(path) > 2 or (len(path) == 2 and str(path[0]).lower() != "main"):
        raise _function_refused(name)


def _function_refused(name: str) -> QueryRejected:
    return QueryRejected(f"The function {name[:80]} is not allowed here.")


def _relation_refused(name: str) -> QueryRejected:
    return QueryRejected(
        f"There is no dataset or system table {name[:80]!r}.",
        hint="`SHOW TABLES` lists the datasets; the system tables are in docs/sql.md.",
    )


def _words(kind: str) -> str:
    return kind.replace("_", " ").lower()


# -- PIVOT without an IN list ---------------------------------------------------------------------

_FIRST_WORDS = frozenset({"pivot", "from", "select", "with", "pivot_wider"})
_PIVOT = frozenset({"pivot", "pivot_wider"})
_WORD = re.compile(r"[^\W\d]\w*")
# A call: a name, perhaps quoted, whose next sign is a parenthesis; comments cannot stand between,
# since a text with comments is refused before.
_CALL = re.compile(r"""([^\W\d]\w*)["']?\s*\(""")
_SYSTEM_NAME = re.compile(
    r'\b(dynaduck|runtime|information_schema)"?\s*\.\s*"?(\w+)', re.IGNORECASE
)
# What a CTE could hide that writes; READ ONLY would stop it too.
_WRITES = frozenset({"insert", "update", "delete", "merge"})
# Calls that only the tree can measure, and keywords that look like a call.
_SIZED = frozenset(
    {
        "array_resize",
        "bitstring",
        "format",
        "generate_series",
        "list_resize",
        "lpad",
        "printf",
        "range",
        "repeat",
        "rpad",
        "to_base",
    }
)


def _admit_pivot(parser: Parser, sql: str, visible: Mapping[str, str]) -> Verdict:
    """Judges what DuckDB does not serialize: a PIVOT passes, everything else is refused.

    Every word of the text counts as code, those in strings too. DuckDB's own opinion comes last,
    since on 1.5 `extract_statements` already executes part of an IMPORT or a PRAGMA.
    """
    words = [word.lower() for word in _WORD.findall(sql)]
    if not words:
        raise QueryRejected("There is no statement.")
    if words[0] not in _FIRST_WORDS:
        raise QueryRejected(f"The statement is no SELECT but {words[0][:40].upper()}.")
    if _PIVOT.isdisjoint(words):
        raise QueryRejected("There is more than one SELECT, or something that is none.")
    for sign in (";", "--", "/*", "$$", "\\"):
        if sign in sql.rstrip().removesuffix(";"):
            raise _pivot_refused(f"contains {sign!r}")
    _check_pivot_words(sql, words)
    kinds = [_kind(statement) for statement in parser.extract_statements(sql)]
    # One statement of several parts on 2.0.1; enum types and a SELECT on 1.5.5.
    is_pivot = kinds == ["MULTI"] or (set(kinds[:-1]) == {"CREATE"} and kinds[-1] == "SELECT")
    if not is_pivot:
        raise QueryRejected("The statement is no SELECT.")
    return Verdict(frozenset(visible[word] for word in words if word in visible))


def _kind(statement: Any) -> str:
    try:
        return str(statement.type.name)
    except ValueError:
        # DuckDB 2.0.1 parses kinds of statements that its Python API has no name for.
        return "UNKNOWN"


def _check_pivot_words(sql: str, words: list[str]) -> None:
    calls = {name.lower() for name in _CALL.findall(sql)}
    for name in sorted(calls):
        if name in rules.DENIED_FUNCTIONS or name.startswith(rules.DENIED_FUNCTION_PREFIXES):
            raise _function_refused(name)
        if name in _SIZED:
            raise _pivot_refused(f"calls {name}")
    for word in words:
        if word in _WRITES or _is_hidden(word):
            raise _pivot_refused(f"contains the word {word!r}")
    named = _SYSTEM_NAME.findall(sql)
    for schema, table in named:
        if (schema.lower(), table.lower()) not in rules.SYSTEM_RELATIONS:
            raise _relation_refused(f"{schema}.{table}")
    schemas = sum(word in ("dynaduck", "runtime", "information_schema") for word in words)
    if schemas != len(named):
        raise _pivot_refused("names a system schema in an unusual way")


def _pivot_refused(why: str) -> QueryRejected:
    return QueryRejected(
        f"This PIVOT {why}; without an IN list it is checked word by word.",
        hint="Give the values: PIVOT … ON column IN (…), or put the inner query first.",
    )
