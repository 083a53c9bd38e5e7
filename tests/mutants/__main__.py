"""Applies each variant to a copy of the tree and runs the tests that should catch it.

`python -m tests.mutants [part of a name]`; ends with `caught N of M`, exit status 1 unless all are.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.mutants.variants import VARIANTS, Variant

ROOT: Final = Path(__file__).parents[2]
ROOMS: Final = ("accelerator", "checkpoints", "connector", "emulator", "metrics", "tests")
FILES: Final = ("pyproject.toml", "docs", "README.md")
TESTS_FAILED: Final = 1
SECONDS: Final = 300


def main(part: str = "") -> int:
    chosen = [variant for variant in VARIANTS if part in variant.name]
    caught = 0
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        _copy(tree)
        for variant in chosen:
            began_s = time.monotonic()
            verdict = _try(variant, tree)
            caught += verdict.startswith("caught")
            print(f"{variant.name}: {verdict} ({time.monotonic() - began_s:.0f} s)", flush=True)
    print(f"caught {caught} of {len(chosen)}")
    return 0 if caught == len(chosen) else 1


def _copy(tree: Path) -> None:
    without = shutil.ignore_patterns("__pycache__", "*.pyc")
    for room in ROOMS:
        shutil.copytree(ROOT / room, tree / room, ignore=without)
    for name in FILES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name)
        elif source.exists():
            shutil.copy(source, tree / name)


def _try(variant: Variant, tree: Path) -> str:
    with _applied(variant, tree):
        for test in variant.tests:
            # No byte code: two edits of one size within a second would be one to the cache.
            run = subprocess.run(
                [
                    *(sys.executable, "-B", "-m", "pytest", "-q", "-x", "--no-header"),
                    *("-p", "no:cacheprovider", "-m", "not soak", f"--timeout={SECONDS}", test),
                ],
                cwd=tree,
                capture_output=True,
                text=True,
                timeout=2 * SECONDS,
            )
            if run.returncode == TESTS_FAILED:
                return f"caught by {_failed(run.stdout) or test}"
            if run.returncode != 0:
                return f"NOT TRIED, pytest says {run.returncode}: {run.stdout[-300:]}"
    return "SURVIVED"


@contextmanager
def _applied(variant: Variant, tree: Path) -> Iterator[None]:
    before = {change.path: (tree / change.path).read_text() for change in variant.changes}
    try:
        for change in variant.changes:
            path = tree / change.path
            text = path.read_text()
            if text.count(change.old) != 1:
                raise SystemExit(f"{variant.name}: its text is not once in {change.path}")
            path.write_text(text.replace(change.old, change.new))
        yield
    finally:
        for name, text in before.items():
            (tree / name).write_text(text)


def _failed(output: str) -> str | None:
    for line in output.splitlines():
        if line.startswith("FAILED "):
            return line.removeprefix("FAILED ").split(" - ")[0]
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
