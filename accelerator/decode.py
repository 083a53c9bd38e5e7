"""Images to typed columns, in SQL.

Owns the query that takes one plan's columns out of item texts and says, row by row, whether every
value came through unchanged. A row that does not is `unfit`; Python looks at it (`items`), grows
the plan or rewrites the text, and the query runs again. No Python object is made per attribute.
"""

from __future__ import annotations

from collections.abc import Sequence

from accelerator import pins
from accelerator.choice import PATH, Misfit
from accelerator.numerals import NORMAL_SQL, decimal_text_sql
from accelerator.schema import NESTED_TAGS, Column, Kind, Plan
from accelerator.sql import identifier, json_pointer, json_text, literal

# Columns of the source relation: i, h, k, image, spare (members of `_raw` that have no column,
# as text) and extra (the same as plain JSON).

_TAG_FIELD = {
    Kind.TEXT: ("S", "VARCHAR"),
    Kind.INTEGER: ("N", "VARCHAR"),
    Kind.DECIMAL: ("N", "VARCHAR"),
    Kind.NUMBER_TEXT: ("N", "VARCHAR"),
    Kind.BOOLEAN: ("BOOL", "BOOLEAN"),
    Kind.BINARY: ("B", "VARCHAR"),
    Kind.TEXT_SET: ("SS", ["VARCHAR"]),
    Kind.INTEGER_SET: ("NS", ["VARCHAR"]),
    Kind.DECIMAL_SET: ("NS", ["VARCHAR"]),
    Kind.NUMBER_TEXT_SET: ("NS", ["VARCHAR"]),
    Kind.BINARY_SET: ("BS", ["VARCHAR"]),
}


def decode_sql(plan: Plan, source: str) -> str:
    """Yields i, h, k, unfit, the plan's physical columns, _raw and _extra.

    JSON columns come out still tagged: `plain.plain_column` unwraps them. A pinned column c7 has a
    tagged x7 beside it, for the same check.
    """
    clashing = _clashing(plan.columns)
    together = [c for c in plan.columns if c.attribute not in clashing]
    alone = [c for c in plan.columns if c.attribute in clashing]
    ignored = _ignored(plan)
    fields = {c.attribute: _structure(c) for c in together}
    # DuckDB refuses a structure without fields.
    structure = literal(json_text(fields | dict.fromkeys(ignored, "JSON") or {"-": "JSON"}))
    inner = ["i", "h", "k", "image", "spare", "extra", f"from_json(image, {structure}) AS s"]
    for column in alone:
        document = f"json_extract(image, {literal(json_pointer(column.attribute))})"
        if column.kind is not Kind.JSON:
            document = f"from_json({document}, {literal(json_text(_structure(column)))})"
        inner.append(f"{document} AS a{column.column_id}")
    middle = ["i", "h", "k", "image", "spare", "extra"]
    present = _joined(
        " + ", [f"CAST(s.{identifier(n)} IS NOT NULL AS INTEGER)" for n in ignored] or ["0"]
    )
    middle.append(f"{present} AS aside")
    for column in plan.columns:
        document = f"a{column.column_id}"
        if column.attribute not in clashing:
            document = f"s.{identifier(column.attribute)}"
        middle += _parts(column, document)
    outer = ["i", "h", "k", f"{_unfit(plan)} AS unfit"]
    outer += [f"{_value(column, plan)} AS {column.physical}" for column in plan.columns]
    outer += [f"t{c.column_id} AS x{c.column_id}" for c in plan.columns if c.kind is Kind.PINNED]
    outer += [f"{_raw(plan.columns)} AS _raw", "extra AS _extra"]
    return (
        f"SELECT {', '.join(outer)} FROM (SELECT {', '.join(middle)} FROM "
        f"(SELECT {', '.join(inner)} FROM {source}))"
    )


def _clashing(columns: Sequence[Column]) -> set[str]:
    # A STRUCT compares its field names without case, and has no empty one.
    groups: dict[str, list[str]] = {}
    for column in columns:
        groups.setdefault(column.attribute.lower(), []).append(column.attribute)
    clashing = {name for group in groups.values() if len(group) > 1 for name in group}
    return clashing | {c.attribute for c in columns if not c.attribute or "\0" in c.attribute}


def _ignored(plan: Plan) -> list[str]:
    """Attributes that the decoder looks for only to know whether others are there.

    Of those that are left out it counts what is present; of those to be taken that have no column
    yet, any that is present makes its row unfit.
    """
    planned = {column.attribute.lower() for column in plan.columns}
    choice = plan.choice
    named = choice.exclude if choice.include is None else choice.include
    unique = {name.lower(): name for name in named if name and name.lower() not in planned}
    return list(unique.values())


def _structure(column: Column) -> object:
    if column.kind is Kind.PINNED:
        return pins.parse(column.pinned).structure()
    if column.kind is Kind.JSON:
        return "JSON"
    if column.kind is Kind.UNKNOWN:
        return {"NULL": "BOOLEAN"}
    tag, sql_type = _TAG_FIELD[column.kind]
    return {tag: sql_type, "NULL": "BOOLEAN"}


def _parts(column: Column, document: str) -> list[str]:
    """p: is present; z: is NULL; t: the text of the value under the expected tag; v: its value."""
    n = column.column_id
    if column.kind is Kind.JSON:
        return [
            f"{document} IS NOT NULL AS p{n}",
            f"CAST({document} AS VARCHAR) AS t{n}",
        ]
    parts = [f"{document} IS NOT NULL AS p{n}", f'{document}."NULL" AS z{n}']
    if column.kind is Kind.PINNED:
        pinned = pins.parse(column.pinned)
        raw = f"json_extract(image, {literal(json_pointer(column.attribute))})"
        return [
            *parts,
            f"CAST({raw} AS VARCHAR) AS t{n}",
            f"{pinned.value_sql(document)} AS v{n}",
            f"{pinned.fits_sql(document)} AS f{n}",
        ]
    if column.kind is Kind.UNKNOWN:
        return parts
    text = f"{document}.{identifier(_TAG_FIELD[column.kind][0])}"
    parts.append(f"{text} AS t{n}")
    typed = _typed(column, text)
    if typed is not None:
        parts.append(f"{typed} AS v{n}")
    return parts


def _typed(column: Column, text: str) -> str | None:
    match column.kind:
        case Kind.INTEGER | Kind.DECIMAL | Kind.INTEGER_SET | Kind.DECIMAL_SET:
            return f"TRY_CAST({text} AS {column.sql_type})"
        case Kind.BINARY:
            return f"TRY(from_base64({text}))"
        case Kind.BINARY_SET:
            return f"list_transform({text}, lambda x: TRY(from_base64(x)))"
        case _:
            return None


def _value(column: Column, plan: Plan) -> str:
    n = column.column_id
    if column.kind is Kind.PINNED:
        value = f"CAST(v{n} AS {column.sql_type})"
        return f"CASE WHEN f{n} THEN {value} END" if _forgives(plan) else value
    if column.kind is Kind.UNKNOWN:
        return "CAST(NULL AS VARCHAR)"
    return f"v{n}" if _typed(column, "") is not None else f"t{n}"


def _fits(column: Column) -> str:
    """TRUE when the value is exactly what the text says; NULL or FALSE otherwise."""
    n = column.column_id
    match column.kind:
        case Kind.INTEGER:
            return f"CAST(v{n} AS VARCHAR) = t{n}"
        case Kind.DECIMAL:
            return f"{decimal_text_sql(f'v{n}', column.scale)} = t{n}"
        case Kind.NUMBER_TEXT:
            return f"regexp_full_match(t{n}, {literal(NORMAL_SQL)})"
        case Kind.INTEGER_SET:
            return f"CAST(v{n} AS VARCHAR[]) = t{n}"
        case Kind.DECIMAL_SET:
            back = decimal_text_sql("x", column.scale)
            return f"list_transform(v{n}, lambda x: {back}) = t{n}"
        case Kind.NUMBER_TEXT_SET:
            test = f"regexp_full_match(x, {literal(NORMAL_SQL)})"
            return f"list_bool_and(list_transform(t{n}, lambda x: {test}))"
        case Kind.BINARY:
            return f"to_base64(v{n}) = t{n}"
        case Kind.BINARY_SET:
            return f"list_transform(v{n}, lambda x: to_base64(x)) = t{n}"
        case Kind.TEXT | Kind.BOOLEAN | Kind.TEXT_SET:
            return f"t{n} IS NOT NULL"
        case Kind.JSON:
            tags = [tag for tag in column.seen if tag != "NULL"] + ["NULL"]
            return " OR ".join(f"starts_with(t{n}, {literal(_opening(tag))})" for tag in tags)
        case Kind.PINNED:
            return f"f{n}"
        case Kind.UNKNOWN:
            return "FALSE"


def _is_unnested(column: Column, plan: Plan) -> bool:
    """True where a map with members belongs into columns of its own."""
    depth = column.attribute.count(PATH)
    return column.kind is Kind.JSON and not column.pinned and depth < plan.choice.unnest_depth


def _forgives(plan: Plan) -> bool:
    return plan.choice.misfit is Misfit.NULL


def _opening(tag: str) -> str:
    return f'{{"{tag}":'


def _unfit(plan: Plan) -> str:
    tests = []
    for column in plan.columns:
        if column.kind is Kind.PINNED and _forgives(plan):
            continue
        fits = _fits(column)
        if _is_unnested(column, plan):
            fits = f"({fits}) AND (NOT starts_with(t{column.column_id}, {literal(_opening('M'))}) "
            fits += f"OR t{column.column_id} = '{{\"M\":{{}}}}')"
        if column.kind not in (Kind.JSON, Kind.PINNED):
            known_null = "NULL" in column.seen
            fits = f"({fits}) OR z{column.column_id}" if known_null else fits
        tests.append(f"(NOT p{column.column_id} OR coalesce({fits}, FALSE))")
    present = _joined(" + ", [f"CAST(p{c.column_id} AS INTEGER)" for c in plan.columns])
    # An item has its key at least: what shows none is no item, `[]` or `null` for instance.
    tests.append(f"({present}) > 0")
    if plan.choice.include is None:
        tests.append(f"len(json_keys(image)) = {present} + aside")
    else:
        tests.append("aside = 0")
    tests.append(_is_well_formed(plan))
    return f"image IS NULL OR NOT coalesce({_joined(' AND ', tests)}, FALSE)"


# Every value has one tag, and behind it what belongs there. DuckDB's from_json does not mind
# `{"S":5}` or a second tag.
_WELL_FORMED = (
    "list_bool_and(list_transform(map_values("
    "from_json(image, '\"MAP(VARCHAR, MAP(VARCHAR, JSON))\"')), "
    "lambda v: coalesce(len(map_keys(v)) = 1 AND CASE "
    "WHEN map_keys(v)[1] IN ('S', 'N', 'B') THEN starts_with(map_values(v)[1], '\"') "
    "WHEN map_keys(v)[1] = 'BOOL' THEN CAST(map_values(v)[1] AS VARCHAR) IN ('true', 'false') "
    "WHEN map_keys(v)[1] = 'NULL' THEN CAST(map_values(v)[1] AS VARCHAR) = 'true' "
    "WHEN map_keys(v)[1] = 'M' THEN starts_with(map_values(v)[1], '{') "
    "WHEN map_keys(v)[1] = 'L' THEN starts_with(map_values(v)[1], '[') "
    "ELSE list_bool_and(list_transform(from_json(map_values(v)[1], '[\"JSON\"]'), "
    "lambda e: coalesce(starts_with(e, '\"'), FALSE))) END, FALSE)))"
)


def _is_well_formed(plan: Plan) -> str:
    """Whether the image holds what was taken from it and nothing else.

    Most do by their length alone: each character is accounted for. It says so of compact JSON
    without escapes only; the others are looked into.
    """
    choice = plan.choice
    if choice.include is not None or choice.exclude:
        return _WELL_FORMED
    # Braces, and a comma behind each member but the last.
    lengths = ["1"]
    for column in plan.columns:
        around = len(json_text(column.attribute).encode()) + len(":,")
        lengths.append(
            f"CASE WHEN p{column.column_id} THEN {around} + {_length(column)} ELSE 0 END"
        )
    return (
        f"CASE WHEN strlen(image) = {_joined(' + ', lengths)} AND NOT contains(image, '\\') "
        f"AND NOT contains(image, '\": ') THEN TRUE ELSE {_WELL_FORMED} END"
    )


def _length(column: Column) -> str:
    """Bytes of the column's tagged value as compact JSON without escapes."""
    n = column.column_id
    if column.kind in (Kind.JSON, Kind.PINNED):
        return f"strlen(t{n})"
    null = len('{"NULL":true}')
    if column.kind is Kind.UNKNOWN:
        return str(null)
    tag, sql_type = _TAG_FIELD[column.kind]
    if tag == "BOOL":
        length = f"CASE WHEN t{n} THEN 13 ELSE 14 END"
    elif isinstance(sql_type, list):
        length = f"strlen(array_to_string(t{n}, '')) + 3 * len(t{n}) + 8"
    else:
        length = f"strlen(t{n}) + 8"
    return f"CASE WHEN z{n} THEN {null} ELSE {length} END"


def _joined(operator: str, terms: Sequence[str]) -> str:
    """As a balanced tree: DuckDB refuses an expression nested a thousand deep."""
    if len(terms) <= 8:
        return "(" + operator.join(terms) + ")"
    middle = len(terms) // 2
    return f"({_joined(operator, terms[:middle])}{operator}{_joined(operator, terms[middle:])})"


def _raw(columns: Sequence[Column]) -> str:
    members = ["spare"]
    for column in columns:
        n = column.column_id
        name = json_text(column.attribute)
        if column.kind is Kind.JSON:
            member = f"{literal(name + ':')} || t{n}"
            if column.base not in NESTED_TAGS and not column.pinned:
                member = (
                    f"CASE WHEN NOT starts_with(t{n}, {literal(_opening(column.base))}) "
                    f"THEN {member} END"
                )
            members.append(member)
        elif column.kind is Kind.PINNED:
            members.append(f"{literal(name + ':')} || t{n}")
        elif "NULL" in column.seen:
            null_member = literal(name + ':{"NULL":true}')
            members.append(f"CASE WHEN z{n} THEN {null_member} END")
    return f"nullif('{{' || concat_ws(',', {', '.join(members)}) || '}}', '{{}}')"
