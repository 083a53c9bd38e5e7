"""STS GetCallerIdentity, which tools ask to see whether credentials work.

Must not know anything else of STS.
"""

from __future__ import annotations

from emulator.errors import AwsError
from emulator.request import Call

_NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"


def caller_identity(call: Call, account_id: str) -> bytes:
    """The answer to GetCallerIdentity.

    Raises:
        AwsError: for any other operation.
    """
    if call.operation != "GetCallerIdentity":
        raise AwsError("InvalidAction", f"No operation {call.operation}", 400)
    return (
        f'<GetCallerIdentityResponse xmlns="{_NAMESPACE}"><GetCallerIdentityResult>'
        f"<Arn>arn:aws:iam::{account_id}:user/emulator</Arn>"
        "<UserId>AIDAEMULATOR00000000</UserId>"
        f"<Account>{account_id}</Account>"
        "</GetCallerIdentityResult><ResponseMetadata><RequestId>EMULATOR</RequestId>"
        "</ResponseMetadata></GetCallerIdentityResponse>"
    ).encode()


def error_xml(code: str, message: str) -> bytes:
    """An error as the query protocol writes it."""
    return (
        f'<ErrorResponse xmlns="{_NAMESPACE}"><Error><Type>Sender</Type><Code>{code}</Code>'
        f"<Message>{message}</Message></Error><RequestId>EMULATOR</RequestId></ErrorResponse>"
    ).encode()
