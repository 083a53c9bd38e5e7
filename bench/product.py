"""The real `dynaduck run` as a process: started, asked over HTTP, measured through /proc.

Owns the process and its data directory's configuration. Knows nothing of what is measured.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Product:
    """One service over one table. It may be started again over the same data directory."""

    def __init__(
        self,
        data_dir: Path,
        endpoint_url: str,
        *,
        table: str = "bench",
        params: dict[str, Any] | None = None,
        memory_limit: str = "1GB",
        runtime: dict[str, Any] | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.port = free_port()
        self._log = data_dir.parent / f"{data_dir.name}.log"
        self._config = data_dir.parent / f"{data_dir.name}.json.yaml"
        self._process: subprocess.Popen[bytes] | None = None
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        config = {
            "datasets": [
                {
                    "from": f"dynamodb:{table}",
                    "name": "bench",
                    "params": {
                        "dynamodb_aws_region": "eu-west-1",
                        "dynamodb_aws_access_key_id": "bench",
                        "dynamodb_aws_secret_access_key": "bench",
                        "endpoint_url": endpoint_url,
                        **(params or {}),
                    },
                }
            ],
            "runtime": {
                "data_dir": str(data_dir),
                "memory_limit": memory_limit,
                "http": {"host": "127.0.0.1", "port": self.port},
                **(runtime or {}),
            },
        }
        self._config.write_text(json.dumps(config))  # JSON is YAML

    def __enter__(self) -> Product:
        return self.start()

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def start(self) -> Product:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "connector", "run", "-c", str(self._config)],
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )
        return self

    def stop(self) -> None:
        process = self._running()
        process.send_signal(signal.SIGTERM)
        if process.wait(120) != 0:
            raise RuntimeError(f"the service did not end well: {self.log()[-2000:]}")

    def kill(self) -> None:
        process = self._running()
        process.kill()
        process.wait()

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    # Asking

    def get(self, path: str) -> tuple[int, Any]:
        return self._ask("GET", path, None)

    def sql(self, query: str) -> list[dict[str, Any]]:
        status, rows = self.ask(query)
        if status != 200:
            raise RuntimeError(f"{query}: {status}: {rows}")
        found: list[dict[str, Any]] = rows
        return found

    def ask(self, query: str) -> tuple[int, Any]:
        """Status and rows, or the error; status 0 while nobody answers, or none whole."""
        return self._ask("POST", "/v1/sql", query)

    def counts(self, rows: int) -> bool:
        """Whether the dataset has so many rows; False while there is none."""
        status, found = self.ask("SELECT count(*) AS n FROM bench")
        return status == 200 and int(found[0]["n"]) == rows

    def commits(self) -> int:
        """Groups committed since it began, those of the slow beat among them."""
        metrics = str(self.get("/metrics")[1])
        lines = metrics.splitlines()
        name = "dataset_dynamodb_apply_seconds_count"
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith(name))

    def is_ready(self) -> bool:
        return self.get("/v1/ready")[0] == 200

    def wait_ready(self, timeout_s: float = 600) -> float:
        """The monotonic time at which it first was."""
        return self.wait(self.is_ready, timeout_s)

    def wait(
        self, claim: Callable[[], object], timeout_s: float = 600, *, every_s: float = 0.01
    ) -> float:
        """Asks again and again until the claim holds; the monotonic time at which it first did."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            if claim():
                return time.monotonic()
            if self._running().poll() is not None or time.monotonic() > deadline_s:
                ready = self.get("/v1/ready")
                raise RuntimeError(f"the service is stuck: {ready}; {self.log()[-3000:]}")
            time.sleep(every_s)

    def committed_records(self) -> int:
        """Stream records that are durable, over all shards."""
        return int(self.sql("SELECT sum(records) AS n FROM dynaduck.checkpoints")[0]["n"] or 0)

    def _ask(self, method: str, path: str, body: str | None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            headers = {"Accept": "application/json", "Content-Type": "text/plain"}
            connection.request(method, path, None if body is None else body.encode(), headers)
            answer = connection.getresponse()
            read = answer.read()
        except (OSError, http.client.IncompleteRead):  # nobody there, or a result cut off
            return 0, None
        finally:
            connection.close()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(read) if is_json else read.decode()

    # What the kernel says

    @property
    def peak_rss_bytes(self) -> int:
        return 1024 * int(self._status("VmHWM").split()[0])

    @property
    def rss_bytes(self) -> int:
        return 1024 * int(self._status("VmRSS").split()[0])

    @property
    def threads(self) -> int:
        return int(self._status("Threads"))

    def cpu_s(self) -> float:
        """User and system seconds since it began."""
        fields = Path(f"/proc/{self._running().pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def reset_peak_rss(self) -> None:
        Path(f"/proc/{self._running().pid}/clear_refs").write_text("5")

    @property
    def pid(self) -> int:
        return self._running().pid

    def _status(self, name: str) -> str:
        for line in Path(f"/proc/{self._running().pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return line.split(":", 1)[1].strip()
        raise KeyError(name)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the service was not started")
        return self._process


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
