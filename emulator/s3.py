"""S3: moto's handler on buckets of one emulator's own.

Owns the isolation of buckets and the time of objects. Must not know faults or sockets.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

from moto.core.request import Request as MotoRequest
from moto.s3.exceptions import BucketAlreadyExists
from moto.s3.models import FakeBucket, FakeKey, S3Backend, s3_backends
from moto.s3.responses import S3Response

from emulator.clock import naive_utc
from emulator.request import Call, Request

_PARTITION = "aws"
# Headers that the front gives to every answer.
_DRESS = ("status", "server", "date", "connection", "x-amzn-requestid")
_accounts = itertools.count(1)


class Buckets(S3Backend):
    """The buckets of one emulator, under an account number that no other one has."""

    def __init__(self, account_id: str, clock_s: Callable[[], float]) -> None:
        super().__init__(_PARTITION, account_id)
        self._clock_s = clock_s

    def create_bucket(self, bucket_name: str, *args: Any, **kwargs: Any) -> FakeBucket:
        if bucket_name in self.buckets:
            raise BucketAlreadyExists(bucket_name)
        # moto keeps one namespace of buckets per process; ours are not in it, and take no name
        # from those that are.
        registry = s3_backends.bucket_accounts
        owner = registry.pop(bucket_name, None)
        try:
            bucket = super().create_bucket(bucket_name, *args, **kwargs)
        finally:
            registry.pop(bucket_name, None)
            if owner is not None:
                registry[bucket_name] = owner
        bucket.creation_date = naive_utc(self._clock_s())
        return bucket

    def put_object(self, bucket_name: str, key_name: str, *args: Any, **kwargs: Any) -> FakeKey:
        bucket = self.get_bucket(bucket_name)
        replaced = None if bucket.is_versioned else bucket.keys.get(key_name)
        key = super().put_object(bucket_name, key_name, *args, **kwargs)
        key.last_modified = naive_utc(self._clock_s())
        _forget(key)
        if isinstance(replaced, FakeKey):
            replaced.dispose()
        return key

    def reset(self) -> None:
        """Does nothing: a mock of moto's that starts or ends in this process is another AWS."""

    def dispose(self) -> None:
        """Closes the temporary files behind the objects."""
        for bucket in self.buckets.values():
            for _, versions in bucket.keys.iterlists():
                for key in versions:
                    if isinstance(key, FakeKey):
                        key.dispose()
            for upload in bucket.multiparts.values():
                upload.dispose()


def _forget(key: FakeKey) -> None:
    """Takes a key off moto's list of all keys ever made, which would keep it for ever."""
    tracked: list[Any] = vars(FakeKey)["instances_tracked"]
    if tracked and tracked[-1] is key:
        tracked.pop()


class Response(S3Response):
    """moto's S3 handler, bound to an account by `S3Api`."""

    account_id = ""

    def get_current_account(self) -> str:
        return self.account_id


class S3Api:
    """S3 of one emulator. One call at a time, so that a conditional PUT is atomic."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._account_id = f"9{next(_accounts):011d}"
        self._lock = threading.Lock()
        self.buckets = Buckets(self._account_id, clock_s)
        self._register()

    def call(self, call: Call, request: Request) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer to a path-style request."""
        host = request.headers.get("host", "127.0.0.1")
        moto_request = MotoRequest.from_primitives(
            request.method, f"http://{host}{request.target}", request.headers, request.body
        )
        moto_request.environ["RAW_URI"] = request.target
        response = Response()
        response.account_id = self._account_id
        respond = response.key_response if call.shard_id else response.bucket_response
        with self._lock:
            self._register()
            status, headers, body = respond(
                moto_request, moto_request.raw_url, dict(moto_request.headers)
            )
            content = body.encode() if isinstance(body, str) else bytes(body)
        kept = {name: str(value) for name, value in headers.items() if name.lower() not in _DRESS}
        return status, kept, content

    def _register(self) -> None:
        # Again before each call: a mock of moto's that ends clears the registry.
        s3_backends[self._account_id][_PARTITION] = self.buckets

    def dispose(self) -> None:
        """Frees what moto holds for this emulator."""
        with self._lock:
            self.buckets.dispose()
            s3_backends.pop(self._account_id, None)


def error_xml(code: str, message: str) -> bytes:
    """An error as S3 writes it."""
    escaped = message.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{code}</Code><Message>{escaped}</Message>"
        "<RequestId>EMULATOR</RequestId></Error>"
    ).encode()
