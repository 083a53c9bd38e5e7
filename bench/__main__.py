"""`python -m bench`: every benchmark in one run, one table, one file (`make bench`).

Owns which sizes are measured and in which order. A run ends with status 1 when a figure misses its
target.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console

from bench import inside, load, pictures, whole
from bench.figures import Results

HERE: Final = Path(__file__).resolve().parent
QUICK_ROWS: Final = 200_000
FULL_ROWS: Final = (1_000_000, 10_000_000)


def main() -> int:
    if sys.argv[1:2] == ["load"]:
        return load.main(sys.argv[2:])
    parser = argparse.ArgumentParser(description="Every benchmark, against its rival.")
    parser.add_argument("--quick", action="store_true", help="small tables, under five minutes")
    parser.add_argument("--rows", type=int, action="append", help="sizes of the tables")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only", action="append", help="whole, inside, latency, idle, widening, files"
    )
    parser.add_argument(
        "--cpu-time", action="store_true", help="in memory by CPU seconds, for a busy machine"
    )
    parser.add_argument("--out", type=Path, default=HERE / "out.json")
    parser.add_argument("--pictures", type=Path, help="a directory to draw into")
    arguments = parser.parse_args()
    sizes = arguments.rows or ((QUICK_ROWS,) if arguments.quick else FULL_ROWS)
    results = Results()
    with tempfile.TemporaryDirectory(prefix="dynaduck-bench-") as directory:
        for name, run in sections(
            results,
            Path(directory),
            sizes=sizes,
            rounds=arguments.rounds,
            is_quick=arguments.quick,
            now_s=time.process_time if arguments.cpu_time else time.perf_counter,
        ):
            if not arguments.only or name in arguments.only:
                run()
    results.write(arguments.out)
    Console().print(results.table())
    if arguments.pictures is not None:
        pictures.draw(results, arguments.pictures)
    return 0 if results.passes else 1


def sections(
    results: Results,
    directory: Path,
    *,
    sizes: tuple[int, ...],
    rounds: int,
    is_quick: bool,
    now_s: Callable[[], float],
) -> list[tuple[str, Callable[[], None]]]:
    """By name, in the order in which they run."""
    found: list[tuple[str, Callable[[], None]]] = []
    for size in sizes:

        def over_http(rows: int = size) -> None:
            whole.Session(results, directory, rows=rows, rounds=rounds).run()

        def in_memory(rows: int = size) -> None:
            inside.measure(results, directory, rows=rows, rounds=rounds, now_s=now_s)

        def visible(rows: int = size) -> None:
            whole.latency(results, directory, rows=rows, seconds=5 if is_quick else 30)

        found += [("whole", over_http), ("inside", in_memory), ("latency", visible)]
    found.append(("idle", lambda: whole.idle(results, directory, seconds=10 if is_quick else 60)))
    rewritten = 50_000 if is_quick else min(1_000_000, max(sizes))
    widened = 50_000 if is_quick else max(sizes)
    found.append(("widening", lambda: inside.widening(results, directory, rows=widened)))
    found.append(("files", lambda: inside.rewrites(results, directory, rows=rewritten)))
    return found


if __name__ == "__main__":
    sys.exit(main())
