"""docs/emulator.md against the code: its examples run, and its tables are complete."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

from emulator import FaultKind, Front, ManualClock, TableSettings, World
from emulator.control_api import ControlApi

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "emulator.md").read_text()


def example(kind: str) -> str:
    """The example that the page marks as tested in this way."""
    match = re.search(rf"<!-- tested: {kind} -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None
    return match[1]


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_pytest_example_passes(tmp_path: Path) -> None:
    """A stranger who copies the fixture and its tests sees them pass, without a warning."""
    (tmp_path / "test_example.py").write_text(example("pytest"))
    done = run("-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_the_script_without_sockets_runs(tmp_path: Path) -> None:
    """The example on virtual time holds what it asserts."""
    done = run("-W", "error", "-c", example("script"), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_setting_is_on_the_page_with_its_default() -> None:
    """A setting that is not in the table cannot be found; a wrong default misleads."""
    defaults = TableSettings()
    listed = dict(re.findall(r"^\| `(\w+)` \| `?([\w.]+)`? \|", PAGE, re.MULTILINE))
    assert set(listed) == {field.name for field in fields(TableSettings)}
    for name, shown in listed.items():
        value = getattr(defaults, name)
        assert shown == (f"{value:g}" if isinstance(value, float) and value < 1e6 else str(value))


def test_every_fault_is_on_the_page_and_nothing_else() -> None:
    """The table of faults is the enum."""
    section = PAGE.partition("## Faults")[2].partition("## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [
        kind.value for kind in FaultKind
    ]


def test_every_path_is_on_the_page_and_nothing_else() -> None:
    """The table of levers is the control endpoint."""
    front = Front(World(clock=ManualClock()))
    api = ControlApi(front.control, front.faults, front.policy, front.calls)
    section = PAGE.partition("## Levers")[2].partition("## ")[0]
    listed = set(re.findall(r"`((?:GET|POST) /[a-z/-]+)`", section))
    assert listed == set(api.verbs) - {"GET /"}
    front.close()


def test_every_lever_on_the_page_exists() -> None:
    """Each method in the left column is a method."""
    front = Front(World(clock=ManualClock()))
    section = PAGE.partition("## Levers")[2].partition("## ")[0]
    for name in re.findall(r"`control\.(\w+)\(", section):
        assert callable(getattr(front.control, name)), name
    front.close()
