"""Which store and which log go together: R1 to R6 and R33 of the checkpoint store, as one function.

Pure: what was said goes in, what holds comes out, or a ConfigError. Knows no file and no client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from connector.config.settings import OffsetStore, WalStorage
from connector.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageAsked:
    """What the settings say; `store` is None where nobody said it."""

    store: OffsetStore | None
    wal_storage: WalStorage
    table: str | None
    wal_bucket: str | None
    bucket: str | None
    catalog_table: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageChosen:
    store: OffsetStore
    wal_bucket: str | None


def choose_storage(asked: StorageAsked, has_extra: Callable[[], bool]) -> StorageChosen:
    """What holds. `has_extra` says whether the packages of dynaduck[cluster] are there.

    Raises: ConfigError.
    """
    is_clustered = asked.wal_storage is WalStorage.CLUSTERED
    if is_clustered and asked.store is OffsetStore.DUCKDB:
        raise ConfigError(
            "runtime.offset_store is duckdb while runtime.wal_storage is clustered.",
            hint="Leave runtime.offset_store out, or set it to dynamodb.",
        )
    store = OffsetStore.DYNAMODB if is_clustered else asked.store or OffsetStore.DUCKDB
    if store is OffsetStore.DYNAMODB and asked.table is None:
        why = (
            "runtime.wal_storage is clustered"
            if is_clustered
            else "runtime.offset_store is dynamodb"
        )
        raise ConfigError(
            f"runtime.offset_dynamodb_table is not set while {why}.",
            hint="Name the table that keeps offsets, leases and members.",
        )
    if asked.table is not None and asked.catalog_table == asked.table:
        raise ConfigError(
            f"runtime.catalog_table and runtime.offset_dynamodb_table are both {asked.table}.",
            hint="The catalog needs a table of its own.",
        )
    wal_bucket = asked.wal_bucket or asked.bucket
    if asked.wal_storage is not WalStorage.DISK and wal_bucket is None:
        raise ConfigError(
            f"runtime.wal_s3_bucket is not set while runtime.wal_storage is "
            f"{asked.wal_storage.value}.",
            hint="Set runtime.wal_s3_bucket, or runtime.s3_bucket for everything.",
        )
    if store is OffsetStore.DYNAMODB and not has_extra():
        raise ConfigError(
            "runtime.offset_store dynamodb needs packages that are not installed.",
            hint="Install them: pip install 'dynaduck[cluster]'.",
        )
    return StorageChosen(store=store, wal_bucket=wal_bucket)
