"""How the process begins."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import duckdb
import pytest

STARTED = """
import sys
from connector.__main__ import main
sys.argv = ["dynaduck", "--help"]
try:
    main()
except SystemExit as ended:
    assert not ended.code
import pyarrow as pa
assert pa.array([{"a": 1}, None]).null_count == 1
assert "pandas" not in sys.modules
"""

# The signal comes at the moment at which the command line is about to be imported.
HUNG_UP = """
import os, signal, sys
from connector import __main__ as start
signal.signal(signal.SIGHUP, signal.SIG_DFL)
load = start.import_module
def hung_up(name):
    os.kill(os.getpid(), signal.SIGHUP)
    return load(name)
start.import_module = hung_up
sys.argv = ["dynaduck", *sys.argv[1:]]
start.main()
"""


@pytest.mark.parametrize(
    ("command", "status"), [("run", 2), ("sync", -signal.SIGHUP), ("status", -signal.SIGHUP)]
)
def test_only_the_service_outlives_a_hang_up_while_it_is_loaded(
    tmp_path: Path, command: str, status: int
) -> None:
    """`systemctl reload` may come early: `run` goes on to refuse its file, others end at once."""
    arguments = [command, "-c", str(tmp_path / "absent.yaml")]
    ran = subprocess.run(
        [sys.executable, "-c", HUNG_UP, *arguments], capture_output=True, text=True, check=False
    )
    assert ran.returncode == status, ran.stderr
    assert ("absent.yaml" in ran.stderr) is (command == "run")


# The process says that it is there, and goes on once its terminal is gone.
ALONE = """
import fcntl, sys, termios, time
from connector.hang_up import has_terminal
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
def wait_alone():
    print("waiting", flush=True)
    while has_terminal():
        time.sleep(0.01)
"""
WHILE_LOADED = HUNG_UP.replace("os.kill(os.getpid(), signal.SIGHUP)", "wait_alone()")
WHILE_OPENED = """
from connector import cli
from connector.cli import serve
class Opened:
    def __init__(self, *_):
        wait_alone()
    def stop(self):
        print("stopped", flush=True)
    def run(self):
        return True
serve.Sidecar = Opened
cli.main()
"""


@pytest.mark.parametrize(
    ("script", "status", "said"),
    [(WHILE_LOADED, -signal.SIGHUP, b""), (WHILE_OPENED, 0, b"stopped\n")],
    ids=["while it is loaded", "while the file is opened"],
)
def test_a_terminal_that_closes_early_ends_the_service(
    tmp_path: Path, script: str, status: int, said: bytes
) -> None:
    """Nobody asked for a reload then, and nobody would see what goes on."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", ALONE + script, "run", "--table", "orders", "--data-dir", "data"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "AWS_REGION": "eu-west-1"},
        cwd=tmp_path,
    )
    os.close(theirs)
    with process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            os.close(ours)
            rest, errors = process.communicate(timeout=60)
            assert (first, rest, process.returncode) == (b"waiting\n", said, status), errors
        finally:
            process.kill()


def test_pandas_stays_out_of_the_process() -> None:
    """pyarrow would import it where it is installed, as it is beside the tests."""
    import_it = [sys.executable, "-c", "import pandas"]
    assert subprocess.run(import_it, capture_output=True, check=False).returncode == 0
    subprocess.run([sys.executable, "-c", STARTED], check=True, capture_output=True)


def test_the_versions_are_told() -> None:
    """What a report of a defect needs: dynaduck's and DuckDB's, in one line, with status 0."""
    told = subprocess.run(
        [sys.executable, "-m", "connector", "--version"], capture_output=True, text=True, check=True
    )
    assert told.stdout == f"dynaduck {version('dynaduck')}, DuckDB {duckdb.__version__}\n"
    assert told.stderr == ""
