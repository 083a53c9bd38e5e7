"""The emulator as a user starts it: in a thread of a test, or as a command.

Owns the life of one server over one world. Must not know how requests are answered.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import boto3
from botocore.config import Config

from emulator.clock import Clock
from emulator.core import DEFAULT_ACCOUNT_ID, DEFAULT_REGION, World
from emulator.front import Front
from emulator.http import HttpServer
from emulator.settings import StreamSettings

ACCESS_KEY_ID = "AKIAEMULATOR00000000"
SECRET_ACCESS_KEY = "emulator"


class Emulator:
    """An AWS on 127.0.0.1 while the `with` block lasts.

        with Emulator(shards=8) as aws:
            aws.client("dynamodb").create_table(...)

    Every `Emulator` is an account of its own: tables and buckets of one are not seen in another.
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
        **stream_settings: Any,
    ) -> None:
        self.region = region
        self.world = World(
            clock=clock,
            seed=seed,
            account_id=account_id,
            settings=StreamSettings().changed(shards=shards, **stream_settings),
        )
        self._front = Front(self.world)
        self._http = HttpServer(self._front.handle, port=port)

    @property
    def url(self) -> str:
        """The endpoint of all services."""
        return self._http.url

    @property
    def clock(self) -> Clock:
        """The clock of everything the emulator shows."""
        return self.world.clock

    def start(self) -> Emulator:
        """Begins to answer; returns itself."""
        self._http.start()
        return self

    def stop(self) -> None:
        """Ends every connection; what was stored is gone with the object."""
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
        """A boto3 client of this emulator: `dynamodb`, `dynamodbstreams`, `s3` or `sts`."""
        options.setdefault("region_name", self.region)
        options.setdefault("aws_access_key_id", ACCESS_KEY_ID)
        options.setdefault("aws_secret_access_key", SECRET_ACCESS_KEY)
        options.setdefault(
            "config", Config(retries={"total_max_attempts": 1}, max_pool_connections=50)
        )
        return boto3.client(service, endpoint_url=self.url, **options)
