"""What can go wrong with durable truth outside this machine, as one tree.

    CheckpointError                message, hint, code, retry, needs_person
    ├── KeyInvalid                 a name that cannot be part of a key
    ├── StoreError                 the table, the bucket, or the way to it
    │   ├── StoreUnavailable       no usable answer: the call may or may not have had its effect
    │   ├── StoreThrottled         refused for its rate: it had no effect
    │   ├── StoreDenied            `.action` is what the policy lacks: it had no effect
    │   └── StoreRefused           the table or bucket is missing, or the request is wrong
    ├── Fenced                     this process may not write any more; there is no way back
    ├── AppendPending              an earlier append has to be settled first
    ├── BaseNeeded                 the log's low end has expired; go on from `.index`
    └── Corrupt                    what is stored contradicts itself
        ├── LogCorrupt
        ├── LogMissing             a lease says there is a log, and there is none
        └── RowCorrupt

A loop goes on by `retry` alone; what it does about `Fenced` and `BaseNeeded` is its own business.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


class Retry(StrEnum):
    """What a caller may do: nothing, or the same again later."""

    NO = "no"
    BACKOFF = "backoff"


class CheckpointError(Exception):
    """One sentence; `hint` is the operator's next step, `code` is stable."""

    code: ClassVar[str] = "checkpoint"
    retry: ClassVar[Retry] = Retry.NO
    needs_person: ClassVar[bool] = False
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint


class KeyInvalid(CheckpointError):
    code = "key_invalid"
    needs_person = True
    default_hint = "Rename it: letters, digits, '.', '_' and '-' are always fine."


class StoreError(CheckpointError):
    code = "store"
    retry = Retry.BACKOFF


class StoreUnavailable(StoreError):
    code = "store_unavailable"
    default_hint = "It is tried again by itself; if it lasts, check the endpoint and the network."


class StoreThrottled(StoreError):
    code = "store_throttled"
    default_hint = "Give the table on-demand capacity, or more write capacity."


class StoreDenied(StoreError):
    """`action` is the IAM action, such as `s3:PutObject`."""

    code = "store_denied"
    needs_person = True

    def __init__(self, message: str, *, action: str) -> None:
        super().__init__(
            message, hint=f"Allow {action}; `dynaduck iam-policy` prints the whole policy."
        )
        self.action = action


class StoreRefused(StoreError):
    code = "store_refused"
    needs_person = True
    default_hint = "Check the names and the region of the offset table and of the segment bucket."


class Fenced(CheckpointError):
    code = "fenced"
    default_hint = "Another node leads or will; this one follows until it is elected anew."


class AppendPending(CheckpointError):
    code = "append_pending"
    default_hint = "Settle the segment whose outcome is unknown before the next one is written."


class BaseNeeded(CheckpointError):
    """`index` is that of the newest base."""

    code = "base_needed"

    def __init__(self, message: str, *, index: int) -> None:
        super().__init__(message)
        self.index = index


class Corrupt(CheckpointError):
    code = "corrupt"
    needs_person = True


class LogCorrupt(Corrupt):
    code = "log_corrupt"
    default_hint = (
        "Nothing more is written. Run `dynaduck segments verify`; see that no other pipeline uses "
        "this prefix, and restore the segment, or start a new pipeline name."
    )


class LogMissing(Corrupt):
    code = "log_missing"
    default_hint = (
        "See that the bucket and the names are right and that no lifecycle rule expires segments "
        "before a younger base exists; a new pipeline name starts from a fresh snapshot."
    )


class RowCorrupt(Corrupt):
    code = "row_corrupt"
    default_hint = "Delete the row: it is only an index of the log and is written anew from it."
