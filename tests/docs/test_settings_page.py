"""docs/settings.md and the JSON Schema against the catalog of settings."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from connector.config.page import json_schema, settings_page
from connector.config.settings import dataset_settings, runtime_settings
from tests.unit.test_config_values import CONTRACT

DOCS = Path(__file__).parents[2] / "docs"


def test_the_settings_page_is_up_to_date() -> None:
    """The page in docs/ is the one that the code makes; `make docs` writes it."""
    assert (DOCS / "settings.md").read_text(encoding="utf-8") == settings_page()


def test_every_setting_is_on_the_page_with_its_default() -> None:
    """Each key of the catalog has a row with its default."""
    rows = settings_page().splitlines()
    for setting in (*dataset_settings(), *runtime_settings()):
        (row,) = [row for row in rows if row.startswith(f"| `{setting.key}` |")][:1]
        assert setting.default is None or f"| `{setting.default}` |" in row
        assert setting.doc in row


def test_the_contracts_example_fits_the_schema() -> None:
    """The documented file is valid by the schema that editors get."""
    jsonschema.Draft202012Validator.check_schema(json_schema())
    jsonschema.validate(yaml.safe_load(CONTRACT), json_schema())


@pytest.mark.parametrize(
    "text",
    [
        "runtime: {htp: {}}",
        "runtime: {http: {port: 70000}}",
        "datasets: [{name: orders}]",
        "datasets: [{from: dynamodb:orders, params: {scan_interval: 5}}]",
        "datasets: [{from: dynamodb:orders, poison: drop}]",
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(text: str) -> None:
    """Unknown keys, wrong values and a dataset without a source do not fit the schema."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), json_schema())
