"""How the process begins."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import duckdb

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
