"""The real command as a subprocess, seen from outside: HTTP, exit status, signals.

`Service` starts `dynaduck run` on a free port over an emulator's URL and a data directory. It ends
only processes it started.
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
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "connector"]
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's environment without any AWS or dynaduck setting of its own."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "DYNADUCK_", "SKIPPR_"))
    }
    # What comes first on the caller's path stays: the older DuckDB is tested that way.
    path = os.pathsep.join([*filter(None, [kept.get("PYTHONPATH")]), str(REPOSITORY)])
    return kept | CREDENTIALS | {"PYTHONPATH": path} | dict(extra or {})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(claim: Callable[[], object], timeout_s: float = 60.0, what: str = "") -> None:
    """Asks until the claim holds; the limit only bounds a hang, it proves no speed."""
    deadline = time.monotonic() + timeout_s
    while not claim():
        if time.monotonic() > deadline:
            raise AssertionError(f"did not come true within {timeout_s:.0f} s: {what or claim}")
        time.sleep(0.05)


def dynaduck(*arguments: str, env: Mapping[str, str] | None = None, timeout_s: float = 90) -> Any:
    """One run of the command to its end: CompletedProcess with text output."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        env=environment(env),
        timeout=timeout_s,
        cwd=REPOSITORY,
    )


class Service:
    """One `dynaduck run`; start it again after a kill and it resumes from its data directory."""

    def __init__(
        self,
        data_dir: Path,
        endpoint_url: str,
        *,
        datasets: list[dict[str, Any]],
        runtime: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._env = environment(env)
        for dataset in datasets:
            params = dataset.setdefault("params", {})
            params.setdefault("dynamodb_aws_region", "eu-west-1")
            params.setdefault("endpoint_url", endpoint_url)
        config = {
            "datasets": datasets,
            "runtime": {
                "data_dir": str(data_dir),
                "http": {"host": "127.0.0.1", "port": self.port},
                **dict(runtime or {}),
            },
        }
        self.config_path = data_dir.parent / f"{data_dir.name}.yaml"
        self.config_path.parent.mkdir(parents=True, exist_ok=True)
        self.config_path.write_text(json.dumps(config))  # JSON is YAML
        self.log_path = data_dir.parent / f"{data_dir.name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **env: str) -> Service:
        assert self.process is None or self.process.poll() is not None, "still running"
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "run", "-c", str(self.config_path), "--log-format", "json"],
                stdout=log,
                stderr=log,
                env=self._env | env,
                cwd=REPOSITORY,
            )
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, timeout_s: float = 60) -> int:
        """SIGTERM, and the exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def request(
        self,
        method: str,
        path: str,
        body: str | None = None,
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Message, bytes]:
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else body.encode(),
            headers={"Accept": accept, "Content-Type": "text/plain", **(headers or {})},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.headers, refusal.read()

    def get(self, path: str) -> tuple[int, Any]:
        try:
            status, headers, body = self.request("GET", path)
        except (OSError, http.client.HTTPException):
            return 0, None
        is_json = headers.get_content_type() == "application/json"
        return status, json.loads(body) if is_json else body.decode()

    def sql(self, query: str) -> list[dict[str, Any]]:
        status, _, body = self.request("POST", "/v1/sql", query)
        assert status == 200, f"{status}: {body.decode()}"
        rows: list[dict[str, Any]] = json.loads(body)
        return rows

    def is_ready(self) -> bool:
        return self.get("/v1/ready")[0] == 200

    def wait_ready(self, timeout_s: float = 90) -> Service:
        def ready_or_dead() -> bool:
            assert self.is_running, f"the service ended: {self.log()[-4000:]}"
            return self.is_ready()

        try:
            wait_until(ready_or_dead, timeout_s, "the service is ready")
        except AssertionError as late:
            raise AssertionError(f"{late}; {self.get('/v1/ready')}; {self.log()[-4000:]}") from None
        return self

    def metrics(self) -> str:
        status, _, body = self.request("GET", "/metrics", accept="text/plain")
        assert status == 200
        return body.decode()


@contextmanager
def running(service: Service) -> Iterator[Service]:
    """Started on entry; on exit stopped, by force where SIGTERM did not do."""
    service.start()
    try:
        yield service
    finally:
        if service.is_running:
            try:
                service.stop(30)
            except subprocess.TimeoutExpired:
                service.kill()
