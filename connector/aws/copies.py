"""Published copies over S3: one object, replaced whole.

Owns the upload. S3 shows an object only when all of it is there, so a reader meets the old copy or
the new one: a small file is one PutObject, a large one a multipart upload, which becomes the object
when it is completed and is aborted when it cannot be. Each body goes with its MD5, so S3 refuses
what was damaged on the way. Must not know what is in a copy.

Source: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html (10,000 parts, 5 MB each
at least)
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import botocore.session
from botocore import exceptions as boto
from botocore.config import Config
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from connector.aws import codes as aws_codes
from connector.aws.stores import StoreSettings
from connector.errors import CopyFailed

PART_BYTES: Final = 16 * 2**20
MOST_PARTS: Final = 10_000
ATTEMPTS: Final = 4
ACTIONS: Final = ("s3:AbortMultipartUpload", "s3:PutObject")


class CopyBucket:
    """Where copies go. The client is made at the first upload; one thread at a time uploads."""

    def __init__(self, settings: StoreSettings, *, part_bytes: int = PART_BYTES) -> None:
        self._settings = settings
        self._part_bytes = part_bytes
        self._client: Any = None

    def put(
        self, path: Path, bucket: str, key: str, *, is_stopped: Callable[[], bool] = lambda: False
    ) -> None:
        """Makes the file the object of that name.

        Raises:
            CopyFailed: the object is as it was before
        """
        place = f"s3://{bucket}/{key}"
        nbytes = path.stat().st_size
        try:
            client = self._client = self._client or _client(self._settings)
            if nbytes <= self._part_bytes:
                body = path.read_bytes()
                client.put_object(Bucket=bucket, Key=key, Body=body, ContentMD5=_md5(body))
            else:
                self._in_parts(client, path, nbytes, {"Bucket": bucket, "Key": key}, is_stopped)
        except boto.ClientError as error:
            raise _refused(error, place) from error
        except (boto.BotoCoreError, ResponseParserError, HTTPError) as error:
            # Credentials may have been replaced by the next attempt.
            self._client = None
            raise CopyFailed(f"The copy could not be sent to {place}: {error}") from error

    def _in_parts(
        self,
        client: Any,
        path: Path,
        nbytes: int,
        target: dict[str, str],
        is_stopped: Callable[[], bool],
    ) -> None:
        part_bytes = max(self._part_bytes, -(-nbytes // MOST_PARTS))
        upload = {**target, "UploadId": client.create_multipart_upload(**target)["UploadId"]}
        try:
            parts: list[dict[str, Any]] = []
            with path.open("rb") as file:
                while body := file.read(part_bytes):
                    if is_stopped():
                        raise CopyFailed("The copy was given up, since the service ends.")
                    number = len(parts) + 1
                    answer = client.upload_part(
                        **upload, PartNumber=number, Body=body, ContentMD5=_md5(body)
                    )
                    parts.append({"ETag": answer["ETag"], "PartNumber": number})
            client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        except BaseException:
            # What cannot be aborted either is left to the bucket's lifecycle rule.
            with suppress(boto.ClientError, boto.BotoCoreError, HTTPError):
                client.abort_multipart_upload(**upload)
            raise


def _client(settings: StoreSettings) -> Any:
    """Unlike the clients of the stores this one retries: sending a copy twice changes nothing."""
    endpoint_url = settings.s3_endpoint_url
    return botocore.session.Session().create_client(
        "s3",
        region_name=settings.region,
        aws_access_key_id=settings.access_key_id,
        aws_secret_access_key=settings.secret_access_key,
        aws_session_token=settings.session_token,
        endpoint_url=endpoint_url,
        config=Config(
            connect_timeout=settings.connect_timeout_s,
            read_timeout=60.0,
            retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
            # Trailers, botocore's own way with checksums, are unknown to servers not of AWS.
            request_checksum_calculation="when_required",
            tcp_keepalive=True,
            **({"s3": {"addressing_style": "path"}} if endpoint_url else {}),
        ),
    )


def _md5(body: bytes) -> str:
    return b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode("ascii")


def _refused(error: boto.ClientError, place: str) -> CopyFailed:
    said = error.response.get("Error", {})
    code = str(said.get("Code", ""))
    message = f"S3 refused the copy at {place}: {code}: {said.get('Message') or 'no reason given'}"
    if code in aws_codes.DENIED:
        hint = f"Allow {' and '.join(ACTIONS)}; `dynaduck iam-policy` prints the whole policy."
        return CopyFailed(message, hint=hint)
    if code == "NoSuchBucket":
        return CopyFailed(message, hint="Make the bucket, or set publish.to to another.")
    if code in aws_codes.CREDENTIALS:
        return CopyFailed(message, hint="Renew the AWS credentials, or set this host's clock.")
    return CopyFailed(message)
