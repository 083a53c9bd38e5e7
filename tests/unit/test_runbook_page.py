"""The runbook as the service serves it: whole, harmless, there wherever dynaduck is installed."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from accelerator.database import Database
from connector.surface.runbook import runbook_text
from connector.surface.status_page import page_text
from tests.docs.test_docs_build import anchors, reason_codes
from tests.http_builder import Served, serving

ROOT = Path(__file__).parents[2]
RUNBOOK = ROOT / "docs" / "runbook.md"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    database = Database.open(tmp_path / "replica.duckdb", memory_limit_bytes=100_000_000)
    try:
        with serving(database) as surface:
            yield surface
    finally:
        database.close()


def test_the_runbook_is_served_as_a_page_of_its_own(served: Served) -> None:
    """One document without a script; the browser is told to fetch nothing for it."""
    reply = served.ask("GET", "/runbook")
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'none'; style-src 'sha256-" in policy
    text = reply.body.decode()
    assert text == runbook_text()
    assert "<script" not in text
    assert "src=" not in text
    assert "width=device-width" in text
    assert "prefers-color-scheme: dark" in text


def test_no_other_page_of_the_documentation_is_served(served: Served) -> None:
    """The runbook alone travels with the service."""
    for path in ("/runbook/", "/runbook.md", "/runbook/../settings.md", "/docs/settings.md"):
        assert served.ask("GET", path).status in (404, 307), path


def test_a_page_of_another_name_may_not_read_the_runbook(served: Served) -> None:
    """Without a token it is answered under a loopback name only, as the status page is."""
    for path in ("/", "/runbook"):
        reply = served.ask("GET", path, host="evil.example")
        assert (reply.status, reply.error) == (403, "foreign_host")


def test_every_link_within_the_page_ends_at_a_heading() -> None:
    """Each reason has its anchor, each anchor is there once, and the anchors are the site's."""
    ids = re.findall(r' id="([^"]+)"', runbook_text())
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    assert reason_codes() <= set(ids)
    assert set(ids) == anchors(RUNBOOK) - {"runbook"}
    links = set(re.findall(r'href="([^"]+)"', runbook_text()))
    assert links - {f"#{each}" for each in ids} == {"/"}
    assert len(links) == len(ids) + 1


def test_a_link_to_another_page_becomes_its_name() -> None:
    """What is not served is no link."""
    assert "Published copies (docs/publish.md)" in runbook_text()


def test_the_status_page_leads_to_the_runbook() -> None:
    """By a link of its own, and by the code of each reason."""
    assert 'href="/runbook"' in page_text()
    assert "`/runbook#${encodeURIComponent(anchor)}`" in page_text()
    named = set(re.findall(r'\banchor: "(\w+)"', page_text()))
    assert named
    assert named <= anchors(RUNBOOK)


def test_the_wheel_brings_the_runbook_along(tmp_path: Path) -> None:
    """What is installed without docs/ beside it serves the same page."""
    wheel = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    show = (
        f"import sys; sys.path.insert(0, {str(installed)!r})\n"
        "from connector.surface import runbook\n"
        "sys.stdout.buffer.write(f'{runbook.__file__}\\n{runbook.runbook_text()}'.encode())"
    )
    ran = subprocess.run([sys.executable, "-c", show], capture_output=True, cwd=tmp_path)
    file, _, page = ran.stdout.decode().partition("\n")
    assert Path(file).is_relative_to(installed), ran.stderr.decode()
    assert page == runbook_text()
