"""The variants stay variants: their text stands in the code, and the page names their tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.variants import VARIANTS, Variant

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "testing.md"


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_variant_changes_something(variant: Variant) -> None:
    """Its old text stands in the code exactly once."""
    for change in variant.changes:
        text = (ROOT / change.path).read_text(encoding="utf-8")
        assert text.count(change.old) == 1, change.path
        assert change.old != change.new


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_the_page_names_the_test_that_catches_it(variant: Variant) -> None:
    """docs/testing.md has a row for each variant, with the test that was made for it."""
    first = variant.tests[0].rpartition("::")[2]
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if "|" in line]
    assert any(variant.name in row and first.split("[")[0] in row for row in rows)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_its_tests_exist(variant: Variant) -> None:
    """A renamed test would catch nothing any more."""
    for test in variant.tests:
        path, _, name = test.partition("::")
        text = (ROOT / path).read_text(encoding="utf-8")
        assert f"def {name.rpartition('::')[2].split('[')[0]}(" in text or not name
