"""What can go wrong above the dataset, as one tree. The dataset's own tree is `accelerator.errors`.

DynaduckError                    message, hint, code, retry, needs_person
├── ConfigError                  a setting is wrong; exit status 2
├── SourceError                  DynamoDB or the way to it
│   ├── Throttled                too many calls or too much read capacity
│   ├── Unavailable              5xx, time-outs, dropped connections, answers of a proxy
│   ├── CorruptPage              an answer that is not whole: length, CRC, encoding, fields
│   ├── IteratorExpired          older than 15 minutes; opened anew from the last position
│   ├── AccessDenied             `.action` is what the policy lacks
│   ├── CredentialsInvalid       none found, unknown, or expired
│   ├── TableNotFound
│   ├── StreamDisabled           the table has no stream that is on
│   ├── ViewTypeUnusable         the stream carries no new images
│   ├── RequestRefused           AWS calls the request itself invalid
│   └── PositionLost             what a checkpoint points to cannot be read any more
│       ├── ShardGone
│       └── Trimmed
└── ServiceError
    ├── StartRefused             another holder, a foreign checkpoint; exit status 2
    ├── NotTheLeader             another node of the cluster has to be asked
    ├── ServiceUnreachable       no service answers a command that needs one
    ├── CopyFailed               a published copy could not be written or sent
    ├── UnknownDataset           no dataset has the name that was given
    ├── OffsetTableUnavailable   the rows in the offset table cannot be read for now
    └── OffsetTableUnusable      a person has to mend the offset table or the way to it
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


class Retry(StrEnum):
    """What a loop does next. All but `NO` is tried again for ever, with a capped back-off."""

    NO = "no"
    BACKOFF = "backoff"
    REINITIALIZE = "reinitialize"


class DynaduckError(Exception):
    """One sentence that says what is wrong; `hint` says what the operator does about it.

    code           stable, for status reasons and metrics
    needs_person   waiting will not mend it: the dataset shows state Error while it is retried
    """

    code: ClassVar[str] = "internal"
    retry: ClassVar[Retry] = Retry.NO
    needs_person: ClassVar[bool] = False
    exit_status: ClassVar[int] = 1
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint


class ConfigError(DynaduckError):
    """The configuration cannot be used as it is."""

    code = "config"
    needs_person = True
    exit_status = 2


class SourceError(DynaduckError):
    """A call to DynamoDB without a usable answer. `aws_code` is AWS's name for it, if any."""

    code = "source"
    retry = Retry.BACKOFF

    def __init__(
        self, message: str, *, hint: str | None = None, aws_code: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.aws_code = aws_code


class Throttled(SourceError):
    code = "throttled"
    default_hint = (
        "Raise the table's read capacity, or set scan_max_rcu; for a stream, see that at most two "
        "readers share each shard (one on a global table)."
    )


class Unavailable(SourceError):
    code = "unavailable"
    default_hint = "It is tried again by itself; if it lasts, check the endpoint and the network."


class CorruptPage(SourceError):
    code = "corrupt_page"
    default_hint = "It is read again by itself; if it lasts, look for a proxy that alters bodies."


class IteratorExpired(SourceError):
    code = "iterator_expired"


class AccessDenied(SourceError):
    """`action` is the IAM action, such as `dynamodb:GetRecords`."""

    code = "access_denied"
    needs_person = True

    def __init__(
        self,
        message: str,
        *,
        action: str,
        hint: str | None = None,
        aws_code: str | None = None,
    ) -> None:
        allow = f"Allow {action}; `dynaduck iam-policy` prints the whole policy."
        super().__init__(message, hint=allow if hint is None else hint, aws_code=aws_code)
        self.action = action


class CredentialsInvalid(SourceError):
    code = "credentials_invalid"
    needs_person = True
    default_hint = (
        "Give AWS credentials by the environment, a profile, a role, or dynamodb_aws_access_key_id "
        "and dynamodb_aws_secret_access_key."
    )


class TableNotFound(SourceError):
    code = "table_not_found"
    needs_person = True
    default_hint = "Check the table's name and region (dynamodb_aws_region), or create the table."


class StreamDisabled(SourceError):
    code = "stream_disabled"
    needs_person = True
    default_hint = (
        "Turn the table's stream on with view type NEW_AND_OLD_IMAGES, or set "
        "acceleration.refresh_mode: full."
    )


class ViewTypeUnusable(SourceError):
    code = "view_type_unusable"
    needs_person = True
    default_hint = (
        "Turn the stream off and on again with view type NEW_IMAGE or NEW_AND_OLD_IMAGES; "
        "the view type of a stream cannot be changed."
    )


class RequestRefused(SourceError):
    code = "request_refused"
    needs_person = True


class PositionLost(SourceError):
    """`dynamodb_replication_invalid_checkpoint_behavior` decides what follows."""

    code = "position_lost"
    retry = Retry.REINITIALIZE
    default_hint = (
        "Set dynamodb_replication_invalid_checkpoint_behavior: restart, "
        "or run `dynaduck refresh DATASET`."
    )


class ShardGone(PositionLost):
    code = "shard_gone"


class Trimmed(PositionLost):
    code = "trimmed"


class ServiceError(DynaduckError):
    code = "service"


class StartRefused(ServiceError):
    code = "start_refused"
    needs_person = True
    exit_status = 2


class NotTheLeader(ServiceError):
    code = "not_the_leader"
    default_hint = "`dynaduck cluster status` names the leader."


class ServiceUnreachable(ServiceError):
    code = "service_unreachable"
    default_hint = "Start it with `dynaduck run`, or say where it is: --url URL, or -c FILE."


class CopyFailed(ServiceError):
    code = "publish_failing"
    retry = Retry.BACKOFF
    default_hint = "It is tried again by itself; the copy that was published before stays whole."


class UnknownDataset(ServiceError):
    code = "unknown_dataset"
    exit_status = 2
    default_hint = "`GET /v1/datasets` lists the datasets."


class OffsetTableUnavailable(ServiceError):
    code = "offset_table_unavailable"
    retry = Retry.BACKOFF


class OffsetTableUnusable(ServiceError):
    code = "offset_table_unusable"
    retry = Retry.BACKOFF
    needs_person = True
    exit_status = 2
