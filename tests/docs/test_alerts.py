"""Alerts and dashboard against the catalog of metrics and the runbook.

`make check-deploy` lets promtool fire each alert; what needs no promtool is held here.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from connector.surface.runbook import runbook_text
from metrics.catalog import CATALOG, Instrument, Kind
from metrics.prometheus import PrometheusExporter
from metrics.recorder import Recorder

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = [
    rule
    for group in yaml.safe_load((PROMETHEUS / "rules.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
CASES = yaml.safe_load((PROMETHEUS / "rules.test.yml").read_text(encoding="utf-8"))["tests"]
DASHBOARD = json.loads(
    (ROOT / "deploy" / "grafana" / "dashboards" / "dynaduck.json").read_text(encoding="utf-8")
)
# Prometheus itself makes `up` and the labels of the target.
OUTSIDE_METRICS = {"up"}
OUTSIDE_LABELS = {"instance", "job", "le"}
ASKED_FOR = {
    "DynaduckLagHigh",
    "DynaduckRetentionHeadroomLow",
    "DynaduckNotReady",
    "DynaduckGap",
    "DynaduckDeadLetters",
    "DynaduckSnapshotStuck",
    "DynaduckFallingBehind",
    "DynaduckReinitialized",
}


def instrument(series: str) -> Instrument:
    """The catalog's entry behind a series' name."""
    for known in CATALOG:
        if known.name == series:
            return known
        histogram = known.kind is Kind.HISTOGRAM
        if histogram and series in {f"{known.name}{s}" for s in ("_bucket", "_sum", "_count")}:
            return known
    raise AssertionError(f"{series} is not in the catalog")


def check_expression(expression: str) -> set[str]:
    """Names and labels of an expression are the catalog's; returns the names."""
    plain = re.sub(r'"[^"]*"', '""', expression)
    names = set(re.findall(r"\b(?:dataset_dynamodb|dynaduck)_\w+|\bup\b", plain))
    assert names, expression
    for series, matchers in re.findall(r"(\w+)\{([^}]*)\}", expression):
        if series in OUTSIDE_METRICS:
            continue
        labels = dict(instrument(series).labels)
        for label, operator, value in re.findall(r'(\w+)\s*(=~|!=|!~|=)\s*"([^"]*)"', matchers):
            assert label in labels.keys() | OUTSIDE_LABELS, f"{series} has no label {label}"
            allowed = labels.get(label)
            if allowed and operator == "=":
                assert value in allowed, f"{series}: {label} is never {value}"
    for names_of in re.findall(r"(?:by|on|without)\s*\(([^)]*)\)", expression):
        for label in re.split(r"[,\s]+", names_of.strip()):
            known = {
                name for each in names - OUTSIDE_METRICS for name in instrument(each).label_names
            }
            assert label in known | OUTSIDE_LABELS, f"{label} in {expression}"
    for name in names - OUTSIDE_METRICS:
        instrument(name)
    return names


def test_the_alerts_that_operators_need_are_there() -> None:
    """Lag, headroom under 6 h, not ready, gaps, dead letters, stuck snapshot, errors with lag."""
    assert {rule["alert"] for rule in RULES} >= ASKED_FOR
    headroom = next(r for r in RULES if r["alert"] == "DynaduckRetentionHeadroomLow")
    assert headroom["expr"].endswith("< 6 * 3600")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_asks_for_what_is_exported(rule: dict[str, Any]) -> None:
    """Each series and label of its expression is in the catalog, with a value it can have."""
    check_expression(rule["expr"])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_leads_to_its_section_of_the_runbook(rule: dict[str, Any]) -> None:
    """Summary, description, severity, and a link to the instance that ends at a heading."""
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert page == "http://{{ $labels.instance }}/runbook"
    assert anchor == rule["alert"].lower()
    assert f'<h3 id="{anchor}">{rule["alert"]}</h3>' in runbook_text()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_fires_in_promtools_test(rule: dict[str, Any]) -> None:
    """It is silent at one time and fires at a later one, over series as they are exported."""
    steps = [
        (step, case)
        for case in CASES
        for step in case["alert_rule_test"]
        if step["alertname"] == rule["alert"]
    ]
    assert [bool(step["exp_alerts"]) for step, _ in steps] == [False, True]
    used: set[str] = set()
    for series in steps[0][1]["input_series"]:
        name, _, text = series["series"].partition("{")
        used.add(name)
        if name not in OUTSIDE_METRICS:
            labels = set(re.findall(r'(\w+)="', text)) - {"instance", "job"}
            assert labels == set(instrument(name).label_names)
    assert used == check_expression(rule["expr"])


def test_a_wrong_name_label_or_value_is_seen() -> None:
    """The check above can fail: three expressions that no service would ever satisfy."""
    check_expression('dataset_dynamodb_state{state="Error"} == 1')
    for wrong in (
        "dataset_dynamodb_lagmax_ms > 1",
        'dataset_dynamodb_ready{dataset="orders"} == 0',
        'dataset_dynamodb_state{state="Broken"} == 1',
        "sum by (shard) (dataset_dynamodb_lag_ms)",
    ):
        with pytest.raises(AssertionError):
            check_expression(wrong)


def test_what_alerts_count_is_exported_from_the_start() -> None:
    """A counter that appears with its first event has no increase: each is there as 0."""
    recorder = Recorder()
    recorder.dataset("orders")
    recorder.started(version="1", duckdb="2", python="3")
    text = PrometheusExporter(recorder).render("")[0].decode()
    counted = {
        name
        for rule in RULES
        for name in re.findall(r"(?:rate|increase)\((\w+)", rule["expr"].replace("\n", ""))
    }
    assert len(counted) >= 4
    for name in counted:
        assert re.search(rf"^{name}(\{{.*\}})? 0(\.0)?$", text, re.MULTILINE), name


PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_a_panel_shows_what_is_exported(panel: dict[str, Any]) -> None:
    """Its queries name series and labels of the catalog, and it says what it shows."""
    assert panel["description"]
    for target in panel["targets"]:
        check_expression(target["expr"])
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        names = check_expression(target["expr"])
        assert shown <= {n for each in names for n in instrument(each).label_names} | {"instance"}


def test_the_dashboard_shows_every_metric_of_a_dataset() -> None:
    """What is measured of a dataset can be seen without writing a query; no two panels overlap."""
    text = json.dumps(DASHBOARD)
    unseen = {i.name for i in CATALOG if i.is_per_dataset and i.name not in text}
    assert unseen == set()
    places: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & places, panel["title"]
        places |= cells
        assert at["x"] + at["w"] <= 24


def test_the_dashboards_variables_are_labels() -> None:
    """The choices of dataset and instance come from series that every service exports."""
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert variables["dataset"]["definition"] == "label_values(dataset_dynamodb_ready, name)"
    assert variables["instance"]["definition"] == "label_values(dynaduck_build_info, instance)"
    instrument("dataset_dynamodb_ready")
    instrument("dynaduck_build_info")
