"""The demo's processes and files: an emulator, the service, one directory for both.

Owns their start and their end: whatever happens to the demo, no child and no file is left. Must
not know the story. Children get a process group of their own, so that Ctrl-C in the terminal
reaches the demo alone, which then ends them in order.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

import boto3
from botocore.config import Config

from connector.client import Address, ServiceClient
from connector.errors import ServiceError

REGION: Final = "us-east-1"  # where the levers of `dynaduck emulator` reach
DATASET: Final = "films"
CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo"}
_START_TIMEOUT_S: Final = 60.0
_ANSWER_TIMEOUT_S: Final = 30.0
_TERM_TIMEOUT_S: Final = 15.0


class Stage:
    """A context: on entry an empty directory and an emulator, on exit nothing."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="dynaduck-demo-"))
        self.emulator_url = f"http://127.0.0.1:{_free_port()}"
        self.service_url = f"http://127.0.0.1:{_free_port()}"
        self.service: subprocess.Popen[bytes] | None = None
        self._emulator: subprocess.Popen[bytes] | None = None
        self._logs: list[IO[bytes]] = []

    def __enter__(self) -> Stage:
        try:
            port = self.emulator_url.rpartition(":")[2]
            self._emulator = self._start("emulator", ["emulator", "--port", port])
            self._wait(self._emulator, self.emulator_url + "/_emulator/", "emulator")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the children, the service first, and removes the directory."""
        for process in (self.service, self._emulator):
            if process is not None:
                _end(process)
        for log in self._logs:
            log.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    # The emulator

    def client(self, connections: int) -> Any:
        """A boto3 client of DynamoDB, as the demo's application has it. Safe for threads."""
        return boto3.client(
            "dynamodb",
            endpoint_url=self.emulator_url,
            region_name=REGION,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            config=Config(max_pool_connections=connections, retries={"total_max_attempts": 5}),
        )

    def control(self, verb: str, body: Mapping[str, Any]) -> Any:
        """Pulls a lever of the emulator: `split`, `rollover`, `configure`…"""
        return json.loads(
            _request("POST", f"{self.emulator_url}/_emulator/{verb}", json.dumps(body))
        )

    # The service

    def configure(self, dataset: Mapping[str, Any], runtime: Mapping[str, Any]) -> None:
        """Writes the service's configuration; JSON is YAML."""
        port = int(self.service_url.rpartition(":")[2])
        config = {
            "datasets": [dict(dataset)],
            "runtime": {
                "data_dir": str(self.directory / "data"),
                "http": {"host": "127.0.0.1", "port": port},
                **runtime,
            },
        }
        self.config_path.write_text(json.dumps(config, indent=2))

    @property
    def config_path(self) -> Path:
        return self.directory / "dynaduck.yaml"

    def start_service(self) -> None:
        """Returns at once; `wait_service` waits until it answers."""
        arguments = ["run", "-c", str(self.config_path), "--log-format", "json"]
        self.service = self._start("service", arguments)

    def wait_service(self) -> None:
        self._wait(self._running(), self.service_url + "/health", "service")

    def kill_service(self) -> int:
        """SIGKILL: no handler, no flush, no goodbye. Returns the process id that is no more."""
        service = self._running()
        service.send_signal(signal.SIGKILL)
        service.wait()
        return service.pid

    def _running(self) -> subprocess.Popen[bytes]:
        if self.service is None:
            raise ServiceError("The demo's service was not started.")
        return self.service

    @property
    def service_client(self) -> ServiceClient:
        return ServiceClient(Address.of_url(self.service_url))

    def get(self, path: str) -> tuple[int, Any]:
        """Status and JSON of the service's answer; status 0 when there is none."""
        try:
            with urllib.request.urlopen(  # noqa: S310 - an address of our own
                self.service_url + path, timeout=_ANSWER_TIMEOUT_S
            ) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.load(refusal)
        except (OSError, ValueError):
            return 0, None

    def sql(self, query: str) -> list[dict[str, Any]]:
        """Raises OSError when the service does not answer with rows."""
        rows: list[dict[str, Any]] = json.loads(
            _request("POST", self.service_url + "/v1/sql", query)
        )
        return rows

    def metric(self, name: str) -> float | None:
        """The value of a metric of the dataset; None when there is none to be had."""
        try:
            text = _request("GET", self.service_url + "/metrics", None).decode()
        except OSError:
            return None
        for line in text.splitlines():
            if line.startswith(name + "{"):
                return float(line.rpartition(" ")[2])
        return None

    def log(self, name: str) -> str:
        """The last lines that a child wrote."""
        path = self.directory / f"{name}.log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""

    def _start(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        log = (self.directory / f"{name}.log").open("ab")
        self._logs.append(log)
        return subprocess.Popen(
            [sys.executable, "-m", "connector", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_environment(),
            process_group=0,
        )

    def _wait(self, process: subprocess.Popen[bytes], url: str, name: str) -> None:
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            if process.poll() is not None:
                raise ServiceError(
                    f"The demo's {name} ended with status {process.returncode}: {self.log(name)}"
                )
            try:
                _request("GET", url, None)
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise ServiceError(f"The demo's {name} did not answer: {self.log(name)}")


def _environment() -> dict[str, str]:
    """The caller's, without AWS or dynaduck settings that would reach into the demo."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "DYNADUCK_"))}
    # Children run the code that the demo itself runs, installed or not.
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [kept.get("PYTHONPATH")])]
    return kept | CREDENTIALS | {"PYTHONPATH": os.pathsep.join(paths)}


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_TERM_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _request(method: str, url: str, body: str | None) -> bytes:
    request = urllib.request.Request(  # noqa: S310 - an address of our own
        url,
        method=method,
        data=None if body is None else body.encode(),
        headers={"Accept": "application/json", "Content-Type": "text/plain; charset=utf-8"},
    )
    with urllib.request.urlopen(request, timeout=_ANSWER_TIMEOUT_S) as answer:  # noqa: S310
        read: bytes = answer.read()
        return read


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
