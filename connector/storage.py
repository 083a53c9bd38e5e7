"""Where a configuration keeps what outlives a disk: the offset table and the bucket of the log.

Owns the way there: names, region, credentials and endpoints, taken from the first dataset, whose
account and region are also those of table and bucket. Must not know what is kept there.

botocore is imported when a store is asked for, and not before: a copy on one disk does without.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from checkpoints.keys import PipelineKey
from checkpoints.kv import ItemStore
from checkpoints.object_store import ObjectStore
from connector.config import Config, Runtime, Secret
from connector.errors import ConfigError

if TYPE_CHECKING:
    from connector.aws.stores import StoreSettings

_REGION_VARIABLES: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_ANY_ENDPOINT: Final = "AWS_ENDPOINT_URL"
_AWS_HOSTS: Final = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")


def pipeline_of(runtime: Runtime) -> PipelineKey:
    """Whose rows, lease and log these are. Raises KeyInvalid."""
    return PipelineKey(runtime.tenant, runtime.workspace, runtime.pipeline)


def cluster_of(runtime: Runtime) -> str:
    """Where members find each other: cluster_id, or the pipeline's own name."""
    return runtime.cluster_id or pipeline_of(runtime).pk.replace("#", "/")


def offset_items(config: Config) -> ItemStore:
    """The offset table. Raises ConfigError where none is named."""
    from connector.aws.stores import DynamoItemStore, store_client

    table = config.runtime.offset_dynamodb_table
    if table is None:
        raise ConfigError(
            "runtime.offset_dynamodb_table is not set.",
            hint="Name the table that keeps offsets, leases and members.",
        )
    return DynamoItemStore(store_client("dynamodb", store_settings(config)), table)


def log_objects(config: Config, *, on_date: Callable[[int], None] | None = None) -> ObjectStore:
    """The bucket of the log. Raises ConfigError where none is named.

    on_date   told the time of each of its answers, in ms
    """
    from connector.aws.stores import S3ObjectStore, store_client

    bucket = config.runtime.wal_s3_bucket
    if bucket is None:
        raise ConfigError(
            "runtime.wal_s3_bucket is not set.",
            hint="Name the bucket of the log, or set runtime.s3_bucket for everything.",
        )
    return S3ObjectStore(store_client("s3", store_settings(config)), bucket, on_date=on_date)


def store_settings(config: Config, env: Mapping[str, str] = os.environ) -> StoreSettings:
    """How table and bucket are reached. Raises ConfigError where no region is known.

    A dataset that names an endpoint of its own outside AWS, such as the emulator's, is taken to
    mean table and bucket too, unless AWS_ENDPOINT_URL_S3 or its like says where those are.
    """
    from connector.aws.stores import StoreSettings

    dataset = config.datasets[0] if config.datasets else None
    region = dataset.region if dataset is not None else _first(env, _REGION_VARIABLES)
    if region is None:
        raise ConfigError(
            "No region is known for the offset table and the bucket.",
            hint="Name a dataset, or set AWS_REGION.",
        )
    named = None if dataset is None else dataset.endpoint_url
    elsewhere = named if named is not None and _is_outside_aws(named) else None
    return StoreSettings(
        region=region,
        access_key_id=None if dataset is None else _revealed(dataset.access_key_id),
        secret_access_key=None if dataset is None else _revealed(dataset.secret_access_key),
        session_token=None if dataset is None else _revealed(dataset.session_token),
        dynamodb_endpoint_url=_endpoint("DYNAMODB", named, env),
        s3_endpoint_url=_endpoint("S3", elsewhere, env),
    )


def _first(env: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((env[name] for name in names if env.get(name)), None)


def _endpoint(service: str, named: str | None, env: Mapping[str, str]) -> str | None:
    """The variable of the service alone, then what the dataset names, then that of all services."""
    return env.get(f"{_ANY_ENDPOINT}_{service}") or named or env.get(_ANY_ENDPOINT) or None


def _is_outside_aws(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return not host.endswith(_AWS_HOSTS)


def _revealed(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()
