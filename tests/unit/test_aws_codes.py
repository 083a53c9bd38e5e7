"""What each of AWS's error codes means to a loop."""

from __future__ import annotations

import pytest

from connector.aws import codes as aws_codes
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

CASES: list[tuple[str, str, str, int, type[SourceError]]] = [
    # The models of the two services.
    ("GetRecords", "ExpiredIteratorException", "", 400, IteratorExpired),
    ("GetRecords", "TrimmedDataAccessException", "", 400, Trimmed),
    ("GetRecords", "LimitExceededException", "", 400, Throttled),
    ("GetRecords", "InternalServerError", "", 500, Unavailable),
    ("GetRecords", "ResourceNotFoundException", "", 400, ShardGone),
    ("GetShardIterator", "TrimmedDataAccessException", "", 400, Trimmed),
    ("GetShardIterator", "ResourceNotFoundException", "", 400, ShardGone),
    ("DescribeStream", "ResourceNotFoundException", "", 400, PositionLost),
    ("DescribeTable", "ResourceNotFoundException", "", 400, TableNotFound),
    ("Scan", "ResourceNotFoundException", "", 400, TableNotFound),
    ("GetItem", "ResourceNotFoundException", "", 400, TableNotFound),
    ("Scan", "ProvisionedThroughputExceededException", "", 400, Throttled),
    ("Scan", "RequestLimitExceeded", "", 400, Throttled),
    ("Scan", "ThrottlingException", "", 400, Throttled),
    ("Scan", "InternalServerError", "", 500, Unavailable),
    # Met, and in no model.
    ("DescribeStream", "ThrottlingException", "Rate exceeded", 400, Throttled),
    ("GetRecords", "ProvisionedThroughputExceededException", "", 400, Throttled),
    ("GetRecords", "SomethingElse", "Rate exceeded", 400, Throttled),
    ("GetRecords", "429", "", 429, Throttled),
    ("GetRecords", "AccessDeniedException", "", 400, AccessDenied),
    ("Scan", "AccessDenied", "", 403, AccessDenied),
    ("GetRecords", "UnrecognizedClientException", "", 400, CredentialsInvalid),
    ("GetRecords", "ExpiredTokenException", "", 400, CredentialsInvalid),
    ("Scan", "ExpiredToken", "", 403, CredentialsInvalid),
    ("Scan", "InvalidSignatureException", "", 400, CredentialsInvalid),
    ("Scan", "MissingAuthenticationToken", "", 403, CredentialsInvalid),
    ("Scan", "ServiceUnavailable", "", 503, Unavailable),
    ("Scan", "NobodyKnowsThis", "", 502, Unavailable),
    ("Scan", "404", "Not Found", 404, Unavailable),
    ("Scan", "", "", 302, Unavailable),
    ("Scan", "ValidationException", "The provided key element does not match", 400, RequestRefused),
    ("Scan", "NobodyKnowsThis", "", 400, RequestRefused),
    ("GetRecords", "UnknownOperationException", "", 400, RequestRefused),
    # DynamoDB Local after a restart.
    ("GetRecords", "ValidationException", "Invalid ShardId in ShardIterator", 400, IteratorExpired),
    ("GetShardIterator", "ValidationException", "Invalid ShardId", 400, ShardGone),
    ("GetShardIterator", "ValidationException", "Invalid SequenceNumber", 400, RequestRefused),
    # Codes come with their name space, too.
    ("Scan", "com.amazonaws.dynamodb.v20120810#ThrottlingException", "", 400, Throttled),
    ("Scan", "ThrottlingException:http://internal.amazon.com/coral/", "", 400, Throttled),
]  # fmt: skip


@pytest.mark.situation(83)
@pytest.mark.parametrize(("operation", "code", "message", "status", "expected"), CASES)
def test_each_code_has_one_meaning(
    operation: str, code: str, message: str, status: int, expected: type[SourceError]
) -> None:
    """Codes decide: the sentence that comes with them may change at any time."""
    error = aws_codes.meaning(operation, code, message, status, subject="orders")

    assert type(error) is expected
    assert "orders" in error.message
    assert operation in error.message


def test_a_denied_action_is_named_as_aws_names_it() -> None:
    """The action of the message goes into the error: it may be another than the operation."""
    error = aws_codes.meaning(
        "Scan",
        "AccessDeniedException",
        "User: arn:aws:iam::1:user/u is not authorized to perform: kms:Decrypt on resource: x "
        "because no identity-based policy allows the kms:Decrypt action",
        400,
        subject="orders",
    )

    assert isinstance(error, AccessDenied)
    assert error.action == "kms:Decrypt"
    assert "kms:Decrypt" in error.hint


def test_a_denied_action_that_is_not_named_is_the_operation() -> None:
    """Without a sentence to read, the call itself tells the action."""
    error = aws_codes.meaning("GetRecords", "AccessDeniedException", "", 400, subject="s")

    assert isinstance(error, AccessDenied)
    assert error.action == "dynamodb:GetRecords"


def test_an_explicit_deny_is_not_answered_with_allow_it() -> None:
    """No further Allow outweighs a Deny, so the hint must not ask for one."""
    error = aws_codes.meaning(
        "Scan",
        "AccessDeniedException",
        "u is not authorized to perform: dynamodb:Scan with an explicit deny in a policy",
        400,
        subject="orders",
    )

    assert "lift that Deny" in error.hint


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("InvalidSignatureException", "Signature expired: 2026 is now earlier than 2026"),
        ("InvalidSignatureException", "Signature not yet current: 2026"),
        ("RequestTimeTooSkewed", ""),
    ],
)
def test_a_skewed_clock_is_named(code: str, message: str) -> None:
    """A signature refused for its time is no matter of keys."""
    error = aws_codes.meaning("Scan", code, message, 400, subject="orders")

    assert "clock" in error.hint


def test_an_answer_that_is_not_from_aws_points_at_the_endpoint() -> None:
    """A bare 404 is the sign of a wrong endpoint or of a proxy."""
    assert "endpoint_url" in aws_codes.meaning("Scan", "404", "", 404, subject="orders").hint
