"""The emulator as a user starts it: in a thread of a test, or as a command.

Owns the life of one server over one world. Must not know how calls are answered.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import TracebackType
from typing import Any

import boto3
from botocore.config import Config

from emulator.call_log import CallLog
from emulator.clock import Clock
from emulator.control import Control
from emulator.core import DEFAULT_ACCOUNT_ID, DEFAULT_REGION, World
from emulator.faults import Fault, FaultKind, FaultPlan, Hold
from emulator.front import Front
from emulator.http import HttpServer
from emulator.policy import Policy
from emulator.settings import TableSettings

ACCESS_KEY_ID = "AKIAEMULATOR00000000"
SECRET_ACCESS_KEY = "emulator"  # any signature is taken; botocore wants to make one


class Emulator:
    """An AWS on 127.0.0.1 while the `with` block lasts.

        with Emulator(shards=8) as aws:
            aws.client("dynamodb").create_table(...)

    Every `Emulator` is an account of its own: tables and buckets of one are not seen in another.
    `port` 0 takes a free one. Further settings are those of `TableSettings`.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        shards: int = 4,
        clock: Clock | None = None,
        seed: int = 0,
        region: str = DEFAULT_REGION,
        account_id: str = DEFAULT_ACCOUNT_ID,
        table_shards: dict[str, int] | None = None,
        **stream_settings: Any,
    ) -> None:
        settings = TableSettings().changed(shards=shards, **stream_settings)
        self.region = region
        self.world = World(
            clock=clock,
            seed=seed,
            account_id=account_id,
            settings=settings,
            table_settings={
                name: settings.changed(shards=count) for name, count in (table_shards or {}).items()
            },
        )
        self._front = Front(self.world, region)
        self._http = HttpServer(self._front.handle, port=port)

    @property
    def url(self) -> str:
        """The endpoint of all services."""
        return self._http.url

    @property
    def clock(self) -> Clock:
        """The clock of everything the emulator shows."""
        return self.world.clock

    @property
    def control(self) -> Control:
        """Splits, rollovers, trimming, expiry."""
        return self._front.control

    @property
    def faults(self) -> FaultPlan:
        """What shall go wrong."""
        return self._front.faults

    @property
    def policy(self) -> Policy:
        """What callers are allowed to do."""
        return self._front.policy

    @property
    def calls(self) -> CallLog:
        """What came in."""
        return self._front.calls

    def fault(self, kind: FaultKind | str, **options: Any) -> Fault:
        """Adds a fault; see `Fault`."""
        return self.faults.add(kind, **options)

    def hold(self, operation: str, **options: Any) -> Hold:
        """Holds back the answer of the next matching call, after it took effect."""
        hold = self.faults.add(FaultKind.HOLD, operation=operation, **options).hold
        assert hold is not None
        return hold

    def start(self) -> Emulator:
        """Begins to answer; returns itself."""
        self._http.start()
        return self

    def stop(self) -> None:
        """Ends every connection; what was stored is gone with the object."""
        self._front.close()
        self._http.stop()

    def __enter__(self) -> Emulator:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def client(self, service: str, **options: Any) -> Any:
        """A boto3 client of this emulator: `dynamodb`, `dynamodbstreams`, `s3` or `sts`.

        It does not retry, so that a test sees each fault once; pass a `config` for more.
        """
        options.setdefault("region_name", self.region)
        options.setdefault("aws_access_key_id", ACCESS_KEY_ID)
        options.setdefault("aws_secret_access_key", SECRET_ACCESS_KEY)
        options.setdefault(
            "config", Config(retries={"total_max_attempts": 1}, max_pool_connections=50)
        )
        return boto3.client(service, endpoint_url=self.url, **options)


def main(
    port: int = 0,
    *,
    shards: int = 4,
    region: str = DEFAULT_REGION,
    seed: int = 0,
    **stream_settings: Any,
) -> int:
    """Runs an emulator until SIGTERM or SIGINT; prints its URL once it answers.

    Must be called in the main thread, for the signals. Returns the exit status: 0, or 2 when it
    cannot listen on the port.
    """
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    try:
        emulator = Emulator(port=port, shards=shards, region=region, seed=seed, **stream_settings)
    except OSError as error:
        sys.stderr.write(
            f"Cannot listen on 127.0.0.1:{port}: {os.strerror(error.errno or 0)}. "
            "Choose another port; 0 takes a free one.\n"
        )
        return 2
    with emulator as aws:
        sys.stdout.write(
            f"Emulator ready: {aws.url} (region {region}, {shards} shards per stream)\n"
        )
        sys.stdout.flush()
        stopped.wait()
    return 0
