"""The runtime's settings and the rules between them: store and log, listeners, ports."""

from __future__ import annotations

import contextlib
import importlib.util
import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from connector.config.layers import Block
from connector.config.reader import Reader, attributes
from connector.config.settings import Flight, Http, Quack, Query, Runtime, runtime_settings
from connector.config.storage_rules import StorageAsked, choose_storage
from connector.errors import ConfigError

CLUSTER_MODULES = ("google.protobuf", "adbc_driver_flightsql")


def secret_directories(block: Block, env: Mapping[str, str], reader: Reader) -> list[Path]:
    """runtime.secrets_dir, and where systemd puts the credentials of a unit."""
    directory = Path("/run/secrets")
    given = block.get("secrets_dir")
    if given is not None:
        # What is wrong with it is said when the runtime's settings are read.
        with contextlib.suppress(ConfigError, ValueError):
            directory = reader.parsed(given)
    directories = [directory]
    if env.get("CREDENTIALS_DIRECTORY"):
        directories.append(Path(env["CREDENTIALS_DIRECTORY"]))
    return directories


def build_runtime(values: Mapping[str, Any], block: Block, reader: Reader) -> Runtime:
    sections = {"http": Http, "flight": Flight, "quack": Quack, "query": Query}
    arguments = attributes(runtime_settings(), values, sections)
    try:
        asked = StorageAsked(
            store=values["offset_store"] if "offset_store" in block else None,
            wal_storage=values["wal_storage"],
            table=values["offset_dynamodb_table"],
            wal_bucket=values["wal_s3_bucket"],
            bucket=values["s3_bucket"],
            catalog_table=values["catalog_table"],
        )
        chosen = choose_storage(asked, has_cluster_extra)
    except ConfigError as error:
        reader.problems.append(error)
    else:
        if chosen.store is not values["offset_store"]:
            reader.derive("runtime.offset_store", chosen.store.value, "runtime.wal_storage")
        if chosen.wal_bucket != values["wal_s3_bucket"]:
            reader.derive("runtime.wal_s3_bucket", str(chosen.wal_bucket), "runtime.s3_bucket")
        arguments |= {"offset_store": chosen.store, "wal_s3_bucket": chosen.wal_bucket}
    runtime = Runtime(**arguments)
    reader.problems += _problems_of_listeners(runtime, tls_is_said="http.tls" in block)
    return runtime


def has_cluster_extra() -> bool:
    """Whether the packages of dynaduck[cluster] are installed; imports none of them."""
    try:
        return all(importlib.util.find_spec(module) for module in CLUSTER_MODULES)
    except ModuleNotFoundError:
        return False


def _problems_of_listeners(runtime: Runtime, *, tls_is_said: bool) -> list[ConfigError]:
    problems = []
    if not _is_loopback(runtime.http.host):
        if runtime.http.token is None:
            problems.append(
                ConfigError(
                    f"runtime.http.token is not set while runtime.http.host is "
                    f"{runtime.http.host}, which others can reach.",
                    hint="Set a token, or listen on 127.0.0.1.",
                )
            )
        if runtime.http.tls is None and not tls_is_said:
            problems.append(
                ConfigError(
                    f"runtime.http.tls is not set while runtime.http.host is "
                    f"{runtime.http.host}, which others can reach.",
                    hint="Set tls: {cert: FILE, key: FILE}, or say tls: off where a proxy does it.",
                )
            )
    ports = {"http": runtime.http.port}
    ports |= {"flight": runtime.flight.port} if runtime.flight.enabled else {}
    ports |= {"quack": runtime.quack.port} if runtime.quack.enabled else {}
    for name, port in ports.items():
        same = [other for other, value in ports.items() if value == port and other > name]
        problems += [
            ConfigError(f"runtime.{name}.port and runtime.{other}.port are both {port}.")
            for other in same
            if port
        ]
    return problems


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
