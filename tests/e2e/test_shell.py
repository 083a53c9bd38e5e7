"""`dynaduck sql` as a person meets it: on a terminal, and at the end of a pipe."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from accelerator.database import Database
from tests.e2e.harness import COMMAND, REPOSITORY, environment
from tests.http_builder import Served, serving
from tests.query_builder import data_file

# Ctrl-C reaches who has the terminal for its own.
_AT_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
_ESCAPES = re.compile(rb"\x1b(\[[0-9;?]*[a-zA-Z]|[=>]|\][^\x07]*\x07)")


class Terminal:
    """A process whose terminal is ours. `screen` is all that it has written, without escapes."""

    def __init__(self, arguments: list[str], env: Mapping[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _AT_TERMINAL, *COMMAND, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=dict(env),
            cwd=REPOSITORY,
            start_new_session=True,
        )
        os.close(theirs)
        self._written = b""
        self._seen = 0

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    @property
    def screen(self) -> str:
        return _ESCAPES.sub(b"", self._written).decode(errors="replace")

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def wait_for(self, text: str, timeout_s: float = 60.0) -> None:
        """Until the text was written, after what was waited for before."""
        deadline = time.monotonic() + timeout_s
        while (found := self.screen.find(text, self._seen)) < 0:
            assert time.monotonic() < deadline, f"no {text!r} in {self.screen[self._seen :]!r}"
            readable, _, _ = select.select([self._ours], [], [], 0.1)
            if readable:
                try:
                    self._written += os.read(self._ours, 65536)
                except OSError:
                    assert text in self.screen[self._seen :], self.screen[self._seen :]
        self._seen = found + len(text)


@contextmanager
def service(tmp_path: Path) -> Iterator[tuple[Database, Served]]:
    with data_file(tmp_path / "data") as database, serving(database, timeout_s=60) as served:
        yield database, served


def shell_env(tmp_path: Path) -> dict[str, str]:
    return environment(
        {
            "TERM": "xterm",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "COLUMNS": "100",
            "XDG_STATE_HOME": str(tmp_path / "state"),
        }
    )


def test_a_session_on_a_terminal(tmp_path: Path) -> None:
    """Lines until a semicolon, completion, commands, an error, Ctrl-C, and the way out."""
    with (
        service(tmp_path) as (_, served),
        Terminal(
            ["sql", "--url", f"http://127.0.0.1:{served.server.port}"], shell_env(tmp_path)
        ) as terminal,
    ):
        terminal.wait_for("dynaduck>")
        terminal.type("SELECT count(*)\r")
        terminal.wait_for("..>")
        terminal.type("AS many FROM orders;\r")
        terminal.wait_for("1000")
        terminal.wait_for("1 row")
        terminal.type("\\d orders\r")
        terminal.wait_for("DECIMAL(38,2)")
        terminal.type("\\format json\r\\timing\r")
        terminal.wait_for("Timing is on.")
        terminal.type("SELECT 41 + 1 AS answer;\r")
        terminal.wait_for('{"answer":42}')
        terminal.wait_for(" ms")
        terminal.type("SELECT nothing FROM orders;\r")
        terminal.wait_for("dynaduck: ")
        terminal.type("SELECT count(*) FROM range(100000000) a, range(100000000) b;\r")
        deadline = time.monotonic() + 30
        while not served.queries.running and time.monotonic() < deadline:
            time.sleep(0.05)
        assert served.queries.running == 1
        terminal.type("\x03")
        terminal.wait_for("Stopped.")
        while served.queries.running and time.monotonic() < deadline:
            time.sleep(0.05)
        assert served.queries.running == 0, "who leaves ends the query"
        terminal.type("SELECT 'still' || ' here' AS x;\r")
        terminal.wait_for("still here")
        terminal.type("\\q\r")
        assert terminal.process.wait(30) == 0
    kept = tmp_path / "state" / "dynaduck" / "history"
    assert "+SELECT 41 + 1 AS answer;" in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0


def piped(served: Served, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "sql", "--url", f"http://127.0.0.1:{served.server.port}", *options],
        input=text,
        capture_output=True,
        text=True,
        env=environment(),
        cwd=REPOSITORY,
        timeout=90,
    )


def test_statements_from_a_pipe(tmp_path: Path) -> None:
    """Each in turn, no prompt; the first that fails ends it with status 1."""
    with service(tmp_path) as (_, served):
        done = piped(
            served,
            "SELECT 1 AS a; -- one;\nSELECT 2 AS b;\nSELECT x; SELECT 3 AS c",
            "--format",
            "csv",
        )
    assert done.returncode == 1
    assert done.stdout.split() == ["a", "1", "b", "2"]
    assert done.stderr.startswith("dynaduck: ")
