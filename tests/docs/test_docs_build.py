"""The pages of docs/ as a site: navigation, links and anchors, and what the pages promise to hold.

`make docs` builds them with mkdocs, warnings as errors. What it would warn of is held here too, so
that the suite does without mkdocs.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelerator.database import Database
from accelerator.query_errors import QueryError
from checkpoints import errors as checkpoint_errors
from connector import errors, recovery
from connector.cli import app
from connector.examine.iam_policy import GET_ITEM, SCAN, STREAM_ACTIONS
from connector.health import DatasetState
from deploy import site_nav

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
PAGES = sorted(DOCS.rglob("*.md"))
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as mkdocs makes them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return frozenset(
        re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())
        for heading in headings
    )


def tree(base: type[Any]) -> list[type[Any]]:
    return [base, *(each for sub in base.__subclasses__() for each in tree(sub))]


def reason_codes() -> set[str]:
    """Every code that a status reason, a gap or an error of the service can have."""
    text = (ROOT / "connector" / "reasons.py").read_text(encoding="utf-8")
    told = set(re.findall(r'Reason\(\s*"(\w+)"', text))
    told |= set(*re.findall(r'"(\w+)" if again else "(\w+)"', text))
    raised = {
        each.code for each in tree(errors.DynaduckError) if each.__module__ == errors.__name__
    }
    # What a node of a cluster meets at the bucket and at the table.
    met = {
        each.code
        for family in (checkpoint_errors.StoreError, checkpoint_errors.Corrupt)
        for each in tree(family)
        if each.code not in ("store", "corrupt")
    }
    return told | raised | met | {cause.value for cause in recovery.Cause}


def test_every_reason_has_a_section_of_the_runbook() -> None:
    """A code that an operator sees can be looked up; nothing is explained that no one can see."""
    codes = reason_codes()
    assert len(codes) >= 40
    sections = anchors(DOCS / "runbook.md")
    assert codes - sections == set()
    text = (DOCS / "runbook.md").read_text(encoding="utf-8")
    known = codes | {rule["alert"] for rule in _rules()}
    assert set(re.findall(r"^### (\w+)$", text, re.MULTILINE)) == known


def test_every_section_says_symptom_cause_and_what_to_do() -> None:
    """The three parts, each with words in it, and no section twice."""
    text = (DOCS / "runbook.md").read_text(encoding="utf-8")
    sections = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    names = [section.splitlines()[0] for section in sections]
    assert len(names) == len(set(names))
    for section in sections:
        for part in ("Symptom", "Cause", "Do"):
            assert re.search(rf"\*\*{part}\.\*\* \S.{{8,}}", section), section.splitlines()[0]


def _rules() -> list[dict[str, Any]]:
    text = (ROOT / "deploy" / "prometheus" / "rules.yml").read_text(encoding="utf-8")
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def test_the_navigation_names_pages_that_exist() -> None:
    """And the hook adds every other page, so that none is built without a way to it."""
    named = site_nav.pages(CONFIG["nav"])
    assert len(named) == len(set(named))
    assert all((DOCS / page).is_file() for page in named)
    whole = site_nav.pages(site_nav.completed(CONFIG["nav"], DOCS))
    assert sorted(whole) == sorted(page.relative_to(DOCS).as_posix() for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_links_stay_within_the_site_and_end_at_a_heading(page: Path) -> None:
    """A link of a page leads to a page, and an anchor to a heading on it."""
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))
    for link in LINK.findall(text):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target in PAGES, f"{page.name} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name} links to {link}"


def test_nothing_is_fetched_to_build_or_to_read() -> None:
    """No font service, no script or style from elsewhere, no repository to ask."""
    assert CONFIG["theme"]["font"] is False
    assert CONFIG["plugins"] == ["search"]
    for key in ("extra_javascript", "extra_css", "repo_url", "extra"):
        assert key not in CONFIG
    for page in PAGES:
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        assert not re.search(r"!\[[^\]]*\]\(http|<script|<img[^>]+http", text), page.name


def test_the_sql_page_lists_the_system_tables_as_they_are(tmp_path: Path) -> None:
    """Table by table and column by column."""
    text = (DOCS / "sql.md").read_text(encoding="utf-8")
    sections = re.split(r"^### ((?:dynaduck|runtime)\.\w+)$", text, flags=re.MULTILINE)[1:]
    said = {
        name: set(
            re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", body, re.MULTILINE)))
        )
        for name, body in zip(sections[::2], sections[1::2], strict=True)
    }
    database = Database.open(tmp_path / "replica.duckdb", memory_limit_bytes=100_000_000)
    try:
        found = database.cursor().execute(
            "SELECT schema_name || '.' || table_name, list(column_name) FROM duckdb_columns() "
            "WHERE schema_name IN ('dynaduck', 'runtime') GROUP BY ALL"
        )
        there = {name: set(columns) for name, columns in found.fetchall()}
    finally:
        database.close()
    assert len(said) == 7
    assert said == {name: there[name] for name in said}


def test_the_sql_page_lists_every_error_of_a_query() -> None:
    """Code and HTTP status."""
    text = (DOCS / "sql.md").read_text(encoding="utf-8")
    said = set(re.findall(r"^\| `(\w+)` \| (\d+) \|", text, re.MULTILINE))
    assert said == {(each.code, str(each.http_status)) for each in tree(QueryError)}


def test_the_concepts_page_lists_every_state() -> None:
    """Those of the health monitor, and no other."""
    text = (DOCS / "concepts.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == {s.value for s in DatasetState}


def test_the_permissions_page_lists_every_action() -> None:
    """Those that a policy can hold for a table."""
    text = (DOCS / "iam.md").read_text(encoding="utf-8")
    said = set(re.findall(r"^\| `(\w+:\w+)` \|", text, re.MULTILINE))
    assert said == {"dynamodb:DescribeTable", SCAN, GET_ITEM, "kms:Decrypt", *STREAM_ACTIONS}


def test_pages_name_only_commands_that_exist() -> None:
    """Each `dynaduck WORD` in code is a command, in the README too."""
    names = {
        each.name or (each.callback.__name__.replace("_", "-") if each.callback else "")
        for each in app.registered_commands
    } | {group.name for group in app.registered_groups}
    for page in [*PAGES, ROOT / "README.md"]:
        text = page.read_text(encoding="utf-8")
        for command in re.findall(r"(?:\$ |`|bin/|connector )dynaduck ([a-z][a-z-]+)", text):
            assert command in names, f"{page.name}: dynaduck {command}"
