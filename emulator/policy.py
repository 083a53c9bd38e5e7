"""What the caller is allowed to do: IAM in its smallest form.

Owns denied actions and the message that names them. Must not know how a call is carried out.
Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from fnmatch import fnmatchcase

from emulator.errors import AwsError
from emulator.request import Call


class Policy:
    """Allows everything until told otherwise. Patterns are actions such as `dynamodb:Get*`."""

    def __init__(self, account_id: str) -> None:
        self._user_arn = f"arn:aws:iam::{account_id}:user/emulator"
        self._account_id = account_id
        self._lock = threading.Lock()
        self._denied: frozenset[str] = frozenset()
        self._allowed: frozenset[str] | None = None

    def deny(self, *actions: str) -> None:
        """Denies some actions, explicitly."""
        with self._lock:
            self._denied |= frozenset(actions)

    def allow_only(self, actions: Iterable[str]) -> None:
        """Denies everything but these."""
        with self._lock:
            self._allowed = frozenset(actions)

    def allow_all(self) -> None:
        """Ends every denial."""
        with self._lock:
            self._denied, self._allowed = frozenset(), None

    def check(self, call: Call) -> None:
        """Lets a call pass or not.

        Raises:
            AwsError: AccessDeniedException, or AccessDenied from S3, as AWS words it.
        """
        action = call.action
        if any(fnmatchcase(action, pattern) for pattern in self._denied):
            reason = "with an explicit deny in an identity-based policy"
        elif self._allowed is not None and not any(
            fnmatchcase(action, pattern) for pattern in self._allowed
        ):
            reason = f"because no identity-based policy allows the {action} action"
        else:
            return
        message = (
            f"User: {self._user_arn} is not authorized to perform: {action} on resource: "
            f"{self._resource(call)} {reason}"
        )
        if call.service == "s3":
            raise AwsError("AccessDenied", message, 403)
        raise AwsError("AccessDeniedException", message, 400)

    def _resource(self, call: Call) -> str:
        if call.service == "s3":
            key = f"/{call.shard_id}" if call.shard_id else ""
            return f'"arn:aws:s3:::{call.table}{key}"' if call.table else "*"
        stream = call.params.get("StreamArn") or str(call.params.get("ShardIterator", ""))
        if stream:
            return str(stream).partition("|")[0]
        if call.table is None:
            return "*"
        return f"arn:aws:dynamodb:{call.region}:{self._account_id}:table/{call.table}"
