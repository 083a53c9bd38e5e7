"""The least privilege that a configuration needs, as an IAM policy document.

Owns which action is needed for what. Pure. Must not know how a call is made; `doctor` tries them.

The label of a stream is a wildcard: a stream that is switched off and on has a new one, and a
policy of the old label would deny it. ListStreams is not here: only `*` can be granted for it, and
the service finds its stream by DescribeTable.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from connector.aws.stores import TABLE_ACTIONS
from connector.config import (
    Config,
    Dataset,
    InitialSnapshot,
    OffsetStore,
    RefreshMode,
    Runtime,
    WalStorage,
)
from connector.config.copy_target import CopyTarget
from connector.errors import ConfigError

VERSION: Final = "2012-10-17"
PUBLISH_ACTIONS: Final = ("s3:AbortMultipartUpload", "s3:PutObject")
STREAM_ACTIONS: Final = (
    "dynamodb:DescribeStream",
    "dynamodb:GetRecords",
    "dynamodb:GetShardIterator",
)
DESCRIBE: Final = "dynamodb:DescribeTable"
SCAN: Final = "dynamodb:Scan"
GET_ITEM: Final = "dynamodb:GetItem"
ROW_ACTIONS: Final = (GET_ITEM, "dynamodb:PutItem", "dynamodb:Query")
"""Of the offset table where no lease and no members are in it."""


class Role(StrEnum):
    """What a process does. Any node of a cluster may be elected, so each needs a leader's policy;
    a follower's is what it uses until then.
    """

    LEADER = "leader"
    FOLLOWER = "follower"
    SYNC = "sync"


def policy(
    config: Config,
    *,
    account: str | None = None,
    verifies: bool = False,
    kms_keys: Sequence[str] = (),
    role: Role = Role.LEADER,
) -> dict[str, Any]:
    """The document that a role needs, no more. Without followers `run` is a leader.

    Raises:
        ConfigError: the configuration has no such role.

    account    of tables that are not named by an ARN; `*` where it is not known
    verifies   also what `verify --repair` and dead-letter replay need
    kms_keys   ARNs of customer-managed keys that encrypt tables
    """
    _refuse_other(role, config.runtime)
    statements: list[dict[str, Any]] = []
    if role is not Role.FOLLOWER:
        for settings in config.datasets:
            statements += _of_dataset(settings, account, verifies=verifies)
    statements += _of_storage(config, account, role)
    if role is not Role.FOLLOWER:
        statements += _of_keys(config.datasets, kms_keys)
    return {"Version": VERSION, "Statement": statements}


def table_resource(settings: Dataset, account: str | None = None) -> str:
    """The table's ARN, with `*` for an account that is not known."""
    if settings.table_arn is not None:
        return settings.table_arn
    return _table_arn(settings.region, account, settings.table)


def stream_pattern(table_arn: str) -> str:
    return f"{table_arn}/stream/*"


def actions(document: dict[str, Any]) -> frozenset[str]:
    """All actions that a document allows."""
    return frozenset(
        action for statement in document["Statement"] for action in statement["Action"]
    )


def _of_dataset(settings: Dataset, account: str | None, *, verifies: bool) -> list[dict[str, Any]]:
    table = table_resource(settings, account)
    follows = settings.refresh_mode is RefreshMode.CHANGES
    scans = not follows or settings.initial_snapshot is not InitialSnapshot.DISABLED
    on_table = [DESCRIBE]
    on_table += [SCAN] if scans or verifies else []
    on_table += [GET_ITEM] if verifies else []
    name = _sid(settings.name)
    statements = [_allow(f"Table{name}", on_table, [table])]
    if follows:
        statements.append(_allow(f"Stream{name}", STREAM_ACTIONS, [stream_pattern(table)]))
    if settings.publish.every_s is not None:
        target = CopyTarget.of(settings.publish, settings.name)
        if target.bucket is not None:
            where = f"arn:{_partition(settings.region)}:s3:::{target.bucket}/{target.name}"
            statements.append(_allow(f"Publish{name}", PUBLISH_ACTIONS, [where]))
    return statements


def _refuse_other(role: Role, runtime: Runtime) -> None:
    is_clustered = runtime.wal_storage is WalStorage.CLUSTERED
    if role is Role.FOLLOWER and not is_clustered:
        raise ConfigError(
            "There are no followers without runtime.wal_storage: clustered.",
            hint="Leave --role out.",
        )
    if role is Role.SYNC and is_clustered:
        raise ConfigError(
            "`dynaduck sync --once` does not run in a cluster.",
            hint="Ask for --role leader, or set runtime.wal_storage: s3.",
        )


def _of_storage(config: Config, account: str | None, role: Role) -> list[dict[str, Any]]:
    runtime = config.runtime
    region = config.datasets[0].region if config.datasets else "*"
    known = {d.account_id for d in config.datasets if d.account_id}
    account = account or (known.pop() if len(known) == 1 else None)
    statements = []
    if runtime.offset_store is OffsetStore.DYNAMODB and runtime.offset_dynamodb_table:
        table = _table_arn(region, account, runtime.offset_dynamodb_table)
        is_clustered = runtime.wal_storage is WalStorage.CLUSTERED
        allowed = TABLE_ACTIONS if is_clustered else ROW_ACTIONS
        statements.append(_allow("Offsets", allowed, [table]))
    if runtime.wal_storage is not WalStorage.DISK and runtime.wal_s3_bucket:
        bucket = f"arn:{_partition(region)}:s3:::{runtime.wal_s3_bucket}"
        prefix = _log_prefix(runtime)
        listing = _allow("LogList", ["s3:ListBucket"], [bucket])
        listing["Condition"] = {"StringLike": {"s3:prefix": f"{prefix}*"}}
        reading = _allow("LogRead", ["s3:GetObject"], [f"{bucket}/{prefix}*"])
        # A follower writes bases, and no segment.
        written = f"{prefix}base/*" if role is Role.FOLLOWER else f"{prefix}*"
        writing = _allow("LogWrite", ["s3:PutObject"], [f"{bucket}/{written}"])
        statements += [listing, reading, writing]
    return statements


def _of_keys(datasets: Sequence[Dataset], kms_keys: Sequence[str]) -> list[dict[str, Any]]:
    if not kms_keys:
        return []
    statement = _allow("Keys", ["kms:Decrypt"], kms_keys)
    services = sorted({_dynamodb_host(settings.region) for settings in datasets})
    statement["Condition"] = {"StringEquals": {"kms:ViaService": services}}
    return [statement]


def _log_prefix(runtime: Runtime) -> str:
    return f"{runtime.tenant}/{runtime.workspace}/{runtime.pipeline}/segments/"


def _allow(sid: str, allowed: Sequence[str], resources: Sequence[str]) -> dict[str, Any]:
    return {
        "Sid": sid,
        "Effect": "Allow",
        "Action": sorted(allowed),
        "Resource": list(resources),
    }


def _table_arn(region: str, account: str | None, table: str) -> str:
    return f"arn:{_partition(region)}:dynamodb:{region}:{account or '*'}:table/{table}"


def _partition(region: str) -> str:
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"


def _dynamodb_host(region: str) -> str:
    return f"dynamodb.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")


def _sid(name: str) -> str:
    """IAM takes letters and digits in a Sid; the bytes of others keep two names apart."""
    return "".join(c if c.isascii() and c.isalnum() else f"x{ord(c):02x}" for c in name)
