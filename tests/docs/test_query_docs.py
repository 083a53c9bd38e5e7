"""The page on SQL says what the gate, the formats and the errors do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from accelerator import gate_rules as rules
from accelerator import query_errors
from accelerator.query_errors import QueryError
from accelerator.results import MEDIA_TYPES
from connector.surface.status_page import page_text

PAGE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text(encoding="utf-8")


def errors() -> list[type[QueryError]]:
    """Every error that a query can end in."""
    found = [value for value in vars(query_errors).values() if isinstance(value, type)]
    return [e for e in found if issubclass(e, QueryError) and e is not QueryError]


@pytest.mark.parametrize("error", errors(), ids=lambda error: error.code)
def test_every_error_code_is_explained_with_its_status(error: type[QueryError]) -> None:
    """A client's author finds each code, and the HTTP status it comes with."""
    assert f"| `{error.code}` | {error.http_status} |" in PAGE


def test_no_error_is_documented_that_does_not_exist() -> None:
    """A code on the page is a code in the program."""
    documented = set(re.findall(r"^\| `(\w+)` \| \d{3} \|", PAGE, re.MULTILINE))
    assert documented == {error.code for error in errors()}


@pytest.mark.parametrize("media_type", MEDIA_TYPES)
def test_every_format_is_listed(media_type: str) -> None:
    """Each Accept value is on the page."""
    assert f"| `{media_type}`" in PAGE


@pytest.mark.parametrize(
    "bound",
    [
        f"| {rules.MAX_TEXT_GROWTH:,}, written",
        f"least(…, {rules.MAX_TEXT_GROWTH})",
        f"| {rules.MAX_LIST_GROWTH:,};",
        f"| {rules.MAX_RELATIONS} |",
        f"| {rules.MAX_SELECTS}; {rules.MAX_STARS}; {rules.MAX_SUBQUERY_DEPTH} |",
        f"| {rules.MAX_GROUPING_SETS} |",
        f"| {rules.MAX_TEXT_BYTES // 1024} kB;",
    ],
)
def test_the_bounds_are_those_of_the_gate(bound: str) -> None:
    """Whoever meets a bound finds its number."""
    assert bound in PAGE


@pytest.mark.parametrize("schema_and_table", sorted(rules.SYSTEM_RELATIONS))
def test_every_readable_system_table_is_named(schema_and_table: tuple[str, str]) -> None:
    """What the gate lets through is documented, and the other way round."""
    schema, table = schema_and_table
    if schema == "information_schema":
        assert table in PAGE
    else:
        assert f"### {schema}.{table}\n" in PAGE


def test_documented_system_tables_are_readable() -> None:
    """A table with a section of its own can be asked."""
    sections = re.findall(r"^### (dynaduck|runtime)\.(\w+)$", PAGE, re.MULTILINE)
    assert set(sections) <= rules.SYSTEM_RELATIONS


def test_the_status_page_names_only_paths_that_exist() -> None:
    """The page's footer lists endpoints of the service."""
    assert set(re.findall(r"<code>\w+ (/[\w/]+)</code>", page_text())) == {
        "/v1/status",
        "/v1/ready",
        "/metrics",
        "/v1/sql",
    }
