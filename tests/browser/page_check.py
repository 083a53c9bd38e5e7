"""The status page in a real browser, in each state; `make check-page` runs it.

Needs Chromium and playwright, which no other test does: so it is collected only when it is named.
Screenshots go to build/page, to be looked at.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from accelerator.database import Database
from connector import reasons
from connector.health import DatasetState
from connector.reasons import Reason
from connector.surface.server import Bind
from connector.surface.status import (
    ConfigurationStatus,
    CostStatus,
    DatasetStatus,
    GapStatus,
    ServiceStatus,
    ShardStatus,
    SnapshotStatus,
)
from tests.http_builder import READY, Served, serving
from tests.query_builder import AS_OF_MS, data_file

SCREENSHOTS = Path(__file__).parents[2] / "build" / "page"
TOKEN = "sesame"
EVIL = "<img src=x onerror=\"document.title='owned'\">"

LINEAGE = tuple(
    ShardStatus(
        f"shardId-{n:020d}-abcdef{n:02d}",
        f"shardId-{(n - 1) // 2:020d}-abcdef{(n - 1) // 2:02d}" if n else None,
        "finished" if n < 7 else "reading",
        "AFTER_SEQUENCE_NUMBER",
        "1" * 30,
        n * 1000,
        n * 10,
        AS_OF_MS,
    )
    for n in range(15)
)
COST = CostStatus(0.0346, 172_800, 0.0346, 0.0, 0.0, "us-east-1, 2026-09")
STATES = {
    "ready": replace(READY, shards=LINEAGE, shards_active=8, changes_per_s=1234.0, cost=COST),
    "initializing": DatasetStatus(
        "orders",
        "orders-table",
        DatasetState.INITIALIZING,
        (reasons.starting(), reasons.retention_low(7_200_000)),
    ),
    "catching-up": replace(
        READY,
        state=DatasetState.CATCHING_UP,
        lag_max_ms=5_400_000,
        reasons=(reasons.late(5_400_000, 2.0, ["shardId-1"], again=False),),
        shards=LINEAGE[7:9],
        snapshot=SnapshotStatus("done", 8, 8, 1_000_000, ended_at_ms=AS_OF_MS),
    ),
    "shutting-down": replace(
        READY, state=DatasetState.SHUTTING_DOWN, reasons=(reasons.stopping(),)
    ),
    "scans-only": DatasetStatus(
        "users",
        "users-table",
        DatasetState.READY,
        (reasons.refreshing(),),
        refresh_mode="full",
        rows=12,
        as_of_ms=AS_OF_MS,
        snapshot=SnapshotStatus("running", 4, 1, 3, items_estimated=12, ratio=0.25, eta_s=12.0),
    ),
    "snapshotting": DatasetStatus(
        "orders",
        "orders-table",
        DatasetState.SNAPSHOTTING,
        (Reason("snapshot_running", "The first snapshot is at 42 %.", "Wait."),),
        rows=420,
        snapshot=SnapshotStatus(
            "running",
            segments_total=8,
            segments_done=3,
            items=420,
            items_estimated=1000,
            ratio=0.42,
            items_per_s=7.7,
            eta_s=75.0,
            consumed_rcu=128.0,
        ),
    ),
    "lagging": replace(
        READY,
        state=DatasetState.LAGGING,
        lag_max_ms=12_345,
        reasons=(Reason("behind", "Shard s-1 is 12 s behind.", "Look for throttling."),),
    ),
    "error": DatasetStatus(
        EVIL,
        EVIL,
        DatasetState.ERROR,
        (
            Reason("trimmed", "The position has left the stream.", "Run `dynaduck refresh`."),
            Reason("dead_letters", "3 records could not be applied.", "List them.", blocks=False),
        ),
        dead_letters=3,
        is_paused=True,
        gaps=(GapStatus("shardId-1", None, EVIL, AS_OF_MS),),
    ),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for all tests."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    assert path is not None, "no Chromium: install it, or name it in CHROMIUM"
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with import_module("playwright.sync_api").sync_playwright() as play:
        launched = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with data_file(tmp_path_factory.mktemp("page")) as opened:
        yield opened


@pytest.fixture
def served(database: Database) -> Iterator[Served]:
    with serving(database) as surface:
        yield surface


@contextmanager
def page_of(browser: Any, served: Served, **look: Any) -> Iterator[Any]:
    """The page, loaded; nothing it says on the console or throws is allowed."""
    context = browser.new_context(**look)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"http://127.0.0.1:{served.server.port}/")
    page.locator("#verdict:not(:text('connecting'))").wait_for()
    yield page
    context.close()
    # Chromium notes every refused request; that of a refused query is wanted.
    assert [line for line in said if "403 (Forbidden)" not in line] == []


def shows(page: Any, selector: str, text: str) -> None:
    """Waits until the element says so. The page's policy forbids scripts that a test brings."""
    page.locator(selector, has_text=text).wait_for()


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_state_is_shown_with_its_reasons(
    browser: Any, served: Served, state: str, scheme: str
) -> None:
    """An operator sees state, reasons and remedies at once, by day and by night."""
    dataset = STATES[state]
    served.facts.told = ServiceStatus("1.2.3", (dataset,), data_file_bytes=123_456_789)
    with page_of(browser, served, color_scheme=scheme) as page:
        text = page.inner_text("#datasets")
        assert dataset.state.value in text
        for reason in dataset.reasons:
            assert reason.sentence.replace("`", "") in text
            assert reason.remedy.replace("`", "") in text
        is_ready = dataset.state is DatasetState.READY
        assert (page.inner_text("#verdict") == "ready") is is_ready
        assert page.title() == f"{'ready' if is_ready else 'not ready'} · dynaduck"
        assert page.locator("img").count() == 0
        page.wait_for_timeout(2_500)
        page.screenshot(path=str(SCREENSHOTS / f"{state}-{scheme}.png"), full_page=True)


@pytest.mark.parametrize("state", STATES)
def test_a_phone_shows_it_without_scrolling_sideways(
    browser: Any, served: Served, state: str
) -> None:
    """Nothing is wider than 360 points."""
    served.facts.told = ServiceStatus("1.2.3", (STATES[state],))
    with page_of(browser, served, viewport={"width": 360, "height": 740}) as page:
        page.fill("#sql", "FROM orders LIMIT 20")
        page.click("#run")
        page.wait_for_selector("#result td")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.screenshot(path=str(SCREENSHOTS / f"{state}-phone.png"), full_page=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_code_of_a_reason_leads_to_its_section_of_the_runbook(
    browser: Any, served: Served, scheme: str
) -> None:
    """On a phone too, by day and by night; the section that was asked for is in view."""
    dataset = STATES["error"]
    served.facts.told = ServiceStatus("1.2.3", (dataset,))
    look = {"color_scheme": scheme, "viewport": {"width": 360, "height": 740}}
    with page_of(browser, served, **look) as page:
        code = dataset.reasons[0].code
        page.click(f".reason a:has-text('{code}')")
        page.wait_for_url(f"**/runbook#{code}")
        top = page.evaluate(f"document.getElementById('{code}').getBoundingClientRect().top")
        assert 0 <= top < 740
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(18, 21, 27)") is (scheme == "dark")
        page.screenshot(path=str(SCREENSHOTS / f"runbook-{scheme}.png"))


SEVERAL = (STATES["ready"], replace(STATES["error"], name="bills"), STATES["scans-only"])


@pytest.mark.parametrize("width", [360, 1100])
def test_several_datasets_and_a_refused_file_are_shown_together(
    browser: Any, served: Served, width: int
) -> None:
    """Each dataset has its card, the worst state is the page's, and a bad reload is on top."""
    refused = ConfigurationStatus(
        "/etc/dynaduck/dynaduck.yaml", 2, AS_OF_MS, "x is not a setting.", ("runtime.http.port",)
    )
    served.facts.told = ServiceStatus("1.2.3", SEVERAL, configuration=refused)
    with page_of(browser, served, viewport={"width": width, "height": 740}) as page:
        shows(page, "#verdict", "not ready: 1 of 3 datasets")
        assert page.locator("#datasets > section").count() == 3
        told = page.inner_text("#configuration")
        assert "x is not a setting." in told
        assert "runtime.http.port" in told
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.screenshot(path=str(SCREENSHOTS / f"several-{width}.png"), full_page=True)


def test_what_reading_costs_is_shown_with_its_parts(browser: Any, served: Served) -> None:
    """The figure, and on it what it is made of and whose prices it goes by."""
    served.facts.told = ServiceStatus("1.2.3", (STATES["ready"],))
    with page_of(browser, served) as page:
        figure = page.locator(".figures > div", has_text="cost a day")
        assert "$0.035" in figure.inner_text()
        told = figure.get_attribute("title")
        assert "172,800 GetRecords" in told
        assert "us-east-1" in told


def test_it_follows_without_reloading(browser: Any, served: Served) -> None:
    """A state that changes shows within a few seconds; so does a service that is gone."""
    with page_of(browser, served) as page:
        assert page.inner_text("#verdict") == "ready"
        served.facts.told = ServiceStatus("1.2.3", (STATES["error"],))
        page.locator("#verdict.bad").wait_for()
        served.facts.told = ServiceStatus("1.2.3")
        shows(page, "#verdict", "no datasets")


def test_a_service_that_is_gone_is_said(browser: Any, database: Database) -> None:
    """The page does not go on showing the last good state."""
    with serving(database) as served:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{served.server.port}/")
        shows(page, "#verdict", "ready")
    shows(page, "#verdict", "no answer")
    context.close()


def test_the_lineage_is_drawn(browser: Any, served: Served) -> None:
    """Every shard is a node, every known parent an edge."""
    served.facts.told = ServiceStatus("1.2.3", (STATES["ready"],))
    with page_of(browser, served) as page:
        assert page.locator("svg .node").count() == len(LINEAGE)
        assert page.locator("svg .edge").count() == len(LINEAGE) - 1


def test_sql_is_answered_in_a_table(browser: Any, served: Served) -> None:
    """Rows with their numbers exact, NULL told from text, freshness below; errors in words."""
    with page_of(browser, served) as page:
        text = EVIL.replace("'", "''")
        page.fill("#sql", f"SELECT 9007199254740993 AS big, NULL AS none, '{text}' AS text")
        page.press("#sql", "Control+Enter")
        page.wait_for_selector("#result td")
        assert page.locator("#result td").all_inner_texts() == ["9007199254740993", "NULL", EVIL]
        assert "as of 2026-01-02T03:04:05.678Z" in page.inner_text("#said")
        page.fill("#sql", "DROP VIEW orders")
        page.click("#run")
        shows(page, "#said", "no SELECT")
        assert not page.is_visible("#result")


def test_an_endless_result_stops_at_what_is_shown(browser: Any, served: Served) -> None:
    """The page takes what it shows and ends the query."""
    with page_of(browser, served) as page:
        page.fill("#sql", "SELECT range FROM range(100000000000)")
        page.click("#run")
        shows(page, "#said", "the first")
        for _ in range(100):
            if served.queries.running == 0:
                break
            page.wait_for_timeout(50)
        assert served.queries.running == 0


def test_the_token_is_asked_for_by_the_browser(browser: Any, database: Database) -> None:
    """With a token set, a user types it as the password and the page works."""
    with serving(database, bind=Bind(port=0, token=TOKEN)) as served:
        credentials = {"username": "me", "password": TOKEN}
        with page_of(browser, served, http_credentials=credentials) as page:
            shows(page, "#verdict", "ready")
            page.fill("#sql", "SELECT 7 AS seven")
            page.click("#run")
            page.wait_for_selector("#result td")
            assert page.inner_text("#result td") == "7"
