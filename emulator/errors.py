"""Errors as AWS answers them: a code, a message, an HTTP status, and the JSON that carries them.

    AwsError
    ├── validation()        400 ValidationException
    ├── not_found()         400 ResourceNotFoundException
    └── …                   any code, from a fault or from moto

Must not know which operation failed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

DYNAMODB_PREFIX = "com.amazonaws.dynamodb.v20120810#"
_CORAL_PREFIXES = {
    "ValidationException": "com.amazon.coral.validate#",
    "SerializationException": "com.amazon.coral.service#",
    "AccessDeniedException": "com.amazon.coral.service#",
    "ExpiredTokenException": "com.amazon.coral.service#",
    "UnrecognizedClientException": "com.amazon.coral.service#",
    "IncompleteSignatureException": "com.amazon.coral.service#",
    "MissingAuthenticationTokenException": "com.amazon.coral.service#",
    "UnknownOperationException": "com.amazon.coral.service#",
    "InternalFailure": "com.amazon.coral.service#",
    "ServiceUnavailable": "com.amazon.coral.availability#",
    "ThrottlingException": "com.amazon.coral.availability#",
}
_CAPITAL_MESSAGE = {"AccessDeniedException"}
_SERVER_SIDE = {"InternalServerError": 500, "InternalFailure": 500, "ServiceUnavailable": 503}


@dataclass(slots=True)
class AwsError(Exception):
    """One AWS error; `body` replaces the usual JSON where AWS adds fields to it."""

    code: str
    message: str
    status: int = 0
    body: bytes = field(default=b"")

    def __post_init__(self) -> None:
        if not self.status:
            self.status = _SERVER_SIDE.get(self.code, 400)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    @property
    def qualified_code(self) -> str:
        """The code with the namespace that the `__type` field carries."""
        return _CORAL_PREFIXES.get(self.code, DYNAMODB_PREFIX) + self.code

    def json_body(self) -> bytes:
        """The error as the JSON protocols of DynamoDB and its streams write it."""
        if self.body:
            return self.body
        name = "Message" if self.code in _CAPITAL_MESSAGE else "message"
        return msgspec.json.encode({"__type": self.qualified_code, name: self.message})


def validation(message: str) -> AwsError:
    """The request is wrong in itself."""
    return AwsError("ValidationException", message)


def not_found(message: str) -> AwsError:
    """The table, stream or shard does not exist."""
    return AwsError("ResourceNotFoundException", message)


def serialization(message: str) -> AwsError:
    """The request's JSON does not have the shape of the operation."""
    return AwsError("SerializationException", message)
