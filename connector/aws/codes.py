"""What AWS's error codes mean here.

Owns the table from (operation, code, message, HTTP status) to the SourceError a loop acts upon.
Pure: no botocore, no HTTP. Codes decide; a message is read only for the name of an action and
where one code stands for two things. The service models list few of the codes that are met: those
of other AWS services, of proxies and of emulators are here too.
"""

from __future__ import annotations

import re
from typing import Final

from connector.errors import (
    AccessDenied,
    CredentialsInvalid,
    IteratorExpired,
    PositionLost,
    RequestRefused,
    ShardGone,
    SourceError,
    TableNotFound,
    Throttled,
    Trimmed,
    Unavailable,
)

THROTTLED: Final = frozenset(
    {
        "BandwidthLimitExceeded",
        "LimitExceededException",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceeded",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
DENIED: Final = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "KMSAccessDeniedException",
        "NotAuthorized",
        "UnauthorizedException",
        "UnauthorizedOperation",
    }
)
CREDENTIALS: Final = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "InvalidToken",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
UNAVAILABLE: Final = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "InternalServerErrorException",
        "InternalServiceError",
        "RequestTimeout",
        "RequestTimeoutException",
        "ResourceInUseException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "TransactionInProgressException",
    }
)
NOT_FOUND: Final = frozenset({"ResourceNotFoundException", "TableNotFoundException"})
INVALID: Final = frozenset({"ValidationException", "ValidationError", "SerializationException"})

_SHARD_OPERATIONS: Final = frozenset({"GetRecords", "GetShardIterator"})
_ACTION: Final = re.compile(r"perform:? ([\w-]+:\w+)")
_SKEW: Final = re.compile(r"signature (not yet current|expired)", re.IGNORECASE)

CLOCK_HINT: Final = "Set this host's clock: AWS refuses signatures more than 5 minutes off."
ENDPOINT_HINT: Final = (
    "What answers at the endpoint is not DynamoDB: check endpoint_url and streams_endpoint_url, "
    "proxies, and AWS_ACCOUNT_ID_ENDPOINT_MODE."
)


def meaning(operation: str, code: str, message: str, status: int, *, subject: str) -> SourceError:
    """The error for an answer of AWS; `subject` is the table, stream or shard asked for."""
    name = code.rsplit("#", 1)[-1].split(":", 1)[0]
    said = (
        f"{operation} of {subject}: {name}: {message}"
        if message
        else f"{operation} of {subject}: {name}"
    )
    if name in THROTTLED or status == 429 or "rate exceeded" in message.lower():
        return Throttled(said, aws_code=name)
    if name in DENIED:
        return _denied(operation, name, message, subject)
    if name in CREDENTIALS:
        skewed = name == "RequestTimeTooSkewed" or _SKEW.search(message)
        return CredentialsInvalid(said, hint=CLOCK_HINT if skewed else None, aws_code=name)
    if name == "ExpiredIteratorException":
        return IteratorExpired(said, aws_code=name)
    if name == "TrimmedDataAccessException":
        return Trimmed(said, aws_code=name)
    if name in NOT_FOUND:
        return _not_found(operation)(said, aws_code=name)
    if name in UNAVAILABLE or status >= 500:
        return Unavailable(said, aws_code=name)
    if name in INVALID:
        return _invalid(operation, message)(said, aws_code=name)
    if name == "UnknownOperationException":
        return RequestRefused(said, hint=ENDPOINT_HINT, aws_code=name)
    if not name or name.isdigit() or name == "Unknown":
        # A status without an AWS error body: something on the way has answered.
        return Unavailable(f"{operation} of {subject}: HTTP status {status}", hint=ENDPOINT_HINT)
    return RequestRefused(said, aws_code=name)


def _denied(operation: str, name: str, message: str, subject: str) -> AccessDenied:
    named = _ACTION.search(message)
    action = named[1] if named else f"dynamodb:{operation}"
    hint = None
    if "explicit deny" in message:
        hint = f"A policy denies {action} explicitly: lift that Deny, no Allow outweighs it."
    return AccessDenied(
        f"{operation} of {subject} is denied: {message or name}",
        action=action,
        hint=hint,
        aws_code=name,
    )


def _not_found(operation: str) -> type[SourceError]:
    if operation in _SHARD_OPERATIONS:
        return ShardGone
    return PositionLost if operation == "DescribeStream" else TableNotFound


def _invalid(operation: str, message: str) -> type[SourceError]:
    # DynamoDB Local says so after it was restarted: "Invalid ShardId in ShardIterator".
    if operation == "GetRecords" and "iterator" in message.lower():
        return IteratorExpired
    if operation == "GetShardIterator" and "invalid shardid" in message.lower():
        return ShardGone
    return RequestRefused
