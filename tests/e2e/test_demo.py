"""`dynaduck demo` as a stranger runs it: it proves what it says, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.harness import COMMAND, REPOSITORY, environment, wait_until

EVERY_ACT = (
    r"17,472 films batch-written",
    r"SIGKILL in the middle of the snapshot",
    r"of 17,472 items [\d,]+ were committed",
    r"Ready: snapshot done",
    r"Steven Spielberg",
    r"Two shards split",
    r"rolled over",
    r"SIGKILL while it follows the stream",
    r"caught up with all that was written",
    r"a new attribute, 'Streaming on'",
    r"Columns that grew",
    r"BIGINT, DECIMAL\(38,1\)",
    r"One family of shards",
    r"Source and copy are equal: [\d,]+ items compared",
)


@contextmanager
def demo(tmp_path: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A running demo whose temporary files and children can be told by `tmp_path`."""
    with (tmp_path.parent / f"{tmp_path.name}.out").open("w") as out:
        process = subprocess.Popen(
            [*COMMAND, "demo", *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment({"TMPDIR": str(tmp_path)}),
            cwd=REPOSITORY,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for pid in children_of(tmp_path):
            os.kill(pid, signal.SIGKILL)


def told(tmp_path: Path) -> str:
    return (tmp_path.parent / f"{tmp_path.name}.out").read_text()


def children_of(tmp_path: Path) -> list[int]:
    """Processes that were given this temporary directory."""
    mark = f"TMPDIR={tmp_path}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:  # it ended, or is not ours to read
            continue
    return found


@pytest.mark.slow(40)
@pytest.mark.timeout(240)
def test_the_demo_shows_every_act_and_ends_equal(tmp_path: Path) -> None:
    """Load, two kills, splits, widenings, comparison: status 0 because both sides are equal."""
    with demo(tmp_path, "--seconds", "15") as process:
        status = process.wait(200)
        output = told(tmp_path)
        assert status == 0, output
        flat = " ".join(output.split())
        for act in EVERY_ACT:
            assert re.search(act, flat), f"{act} is not in:\n{output}"
        assert "\x1b" not in output, "no terminal, no escape codes"
        assert "Traceback" not in output
        assert children_of(tmp_path) == []
        assert list(tmp_path.iterdir()) == []


@pytest.mark.slow(20)
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "four writers are at work"),
        (signal.SIGTERM, "A table of films in DynamoDB"),
    ],
)
def test_an_interrupted_demo_leaves_nothing(
    tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    """Ctrl-C at its busiest or SIGTERM while it loads: no child, no file, no traceback."""
    with demo(tmp_path) as process:
        wait_until(lambda: moment in told(tmp_path), what=moment)
        process.send_signal(number)
        assert process.wait(60) == 130, told(tmp_path)
        assert "Interrupted." in told(tmp_path)
        assert "Traceback" not in told(tmp_path)
        assert children_of(tmp_path) == []
        assert list(tmp_path.iterdir()) == []
