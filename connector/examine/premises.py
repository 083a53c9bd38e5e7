"""What the host must offer: a data directory, a file that nobody holds, ports that are free.

Owns the looks at this machine, and at a service of ours that runs here already: then the file and
the ports are its own, and its metrics tell what a look at the file would. Must not know AWS.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import socket
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from accelerator.database import Database
from accelerator.errors import AcceleratorError, FileHeldByProcess
from connector.config import Runtime
from connector.errors import ConfigError
from connector.examine.findings import Finding, Verdict
from connector.surface.flight.wiring import check_flight
from connector.surface.server import Bind, TlsFiles

SUBJECT: Final = "runtime"
LOW_HEADROOM_S: Final = 6 * 3600.0
THROTTLED_SHARE: Final = 0.05
LOW_DISK_BYTES: Final = 1_000_000_000
TIMEOUT_S: Final = 2.0

_SAMPLE: Final = re.compile(r"^(\w+)\{([^}]*)\} ([-+.\w]+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Running:
    """A service on the configured port, by what its /metrics say."""

    metrics: str

    def headroom_s(self, dataset: str) -> float | None:
        return self._sum("dataset_dynamodb_retention_headroom_seconds", name=dataset)

    def gaps_open(self, dataset: str) -> float:
        return self._sum("dataset_dynamodb_gaps_open", name=dataset) or 0.0

    def is_in_error(self, dataset: str) -> bool:
        return bool(self._sum("dataset_dynamodb_state", name=dataset, state="Error"))

    def throttled_reads(self, dataset: str) -> float | None:
        """Share of GetRecords calls that were throttled; None before the first call."""
        calls = "dataset_dynamodb_api_calls_total"
        made = self._sum(calls, name=dataset, operation="GetRecords")
        throttled = self._sum(calls, name=dataset, operation="GetRecords", outcome="throttled")
        return (throttled or 0.0) / made if made else None

    def _sum(self, metric: str, **labels: str) -> float | None:
        values = [
            float(value)
            for name, said, value in _SAMPLE.findall(self.metrics)
            if name == metric and labels.items() <= dict(_LABEL.findall(said)).items()
        ]
        return sum(values) if values else None


def examine(runtime: Runtime) -> tuple[list[Finding], Running | None]:
    """The findings, and the service that runs here already, if one does."""
    running = running_service(runtime)
    findings = [_directory(runtime.data_dir)]
    if running is not None:
        said = f"A service of ours answers on port {runtime.http.port}."
        findings.append(Finding(SUBJECT, "port", Verdict.OK, said))
        findings.append(Finding(SUBJECT, "data file", Verdict.OK, "It is the running service's."))
        return findings, running
    if findings[0].verdict is not Verdict.FAILED:
        findings.append(_file(runtime))
    findings.append(_port("runtime.http.port", runtime.http.host, runtime.http.port))
    if runtime.flight.enabled:
        findings.append(_port("runtime.flight.port", runtime.http.host, runtime.flight.port))
        findings.append(_flight(runtime))
    if runtime.quack.enabled:
        findings.append(_port("runtime.quack.port", runtime.http.host, runtime.quack.port))
    return findings, None


def running_service(runtime: Runtime) -> Running | None:
    """Asks the configured port for metrics, as /metrics needs no token."""
    host = runtime.http.host.strip("[]")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # read, not bound
    port = runtime.http.port
    connection: http.client.HTTPConnection
    if runtime.http.tls is not None:
        # The certificate names the service's public host; here only its kind is of interest.
        context = ssl._create_unverified_context()  # noqa: SLF001, S323
        connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            return None
    return Running(text) if "dynaduck_" in text or "dataset_dynamodb_" in text else None


def _directory(data_dir: Path) -> Finding:
    check = "data_dir"
    existing = next(path for path in (data_dir, *data_dir.absolute().parents) if path.exists())
    fix = f"Make {data_dir} writable for user {os.getuid()}, or set runtime.data_dir."
    if not existing.is_dir():
        return Finding(SUBJECT, check, Verdict.FAILED, f"{existing} is no directory.", fix)
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        said = f"{existing} cannot be written: {error.strerror}."
        return Finding(SUBJECT, check, Verdict.FAILED, said, fix)
    free = shutil.disk_usage(existing).free
    said = f"{data_dir} is writable, {free / 1e9:,.1f} GB free."
    if free < LOW_DISK_BYTES:
        return Finding(SUBJECT, check, Verdict.NOTE, said, "Free disk space before a snapshot.")
    return Finding(SUBJECT, check, Verdict.OK, said)


def _file(runtime: Runtime) -> Finding:
    check, path = "data file", runtime.replica_file
    if not path.exists():
        return Finding(SUBJECT, check, Verdict.OK, f"{path} will be made.")
    try:
        Database.open(path, memory_limit_bytes=runtime.memory_limit_bytes, read_only=True).close()
    except FileHeldByProcess as error:
        return Finding(SUBJECT, check, Verdict.FAILED, str(error), error.hint)
    except AcceleratorError as error:
        return Finding(SUBJECT, check, Verdict.FAILED, str(error), error.hint)
    return Finding(SUBJECT, check, Verdict.OK, f"{path} opens and nobody holds it.")


def _flight(runtime: Runtime) -> Finding:
    check, tls = "flight", runtime.http.tls
    http = Bind(runtime.http.host, tls=None if tls is None else TlsFiles(tls.cert, tls.key))
    try:
        check_flight(runtime.flight, http)
    except ConfigError as error:
        return Finding(SUBJECT, check, Verdict.FAILED, error.message, error.hint)
    return Finding(SUBJECT, check, Verdict.OK, "Flight SQL can be served.")


def _port(setting: str, host: str, port: int) -> Finding:
    check = "port"
    if port == 0:
        return Finding(SUBJECT, check, Verdict.OK, f"{setting} takes a free one.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((host.strip("[]"), port))
    except OSError as error:
        said = f"{host}:{port} cannot be listened on: {error.strerror}."
        fix = f"Stop what has the port (`ss -ltnp`), or set {setting}."
        return Finding(SUBJECT, check, Verdict.FAILED, said, fix)
    return Finding(SUBJECT, check, Verdict.OK, f"{host}:{port} is free.")
