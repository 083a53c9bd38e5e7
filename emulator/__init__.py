"""An embedded AWS for tests: DynamoDB with faithful streams, S3, over real HTTP.

    from emulator import Emulator

    with Emulator(shards=8) as aws:
        dynamodb = aws.client("dynamodb")

Without sockets, on virtual time: `Front(World(clock=ManualClock(), seed=7)).call("Scan", {...})`.
Stands alone: it imports nothing of the rest of the project.
"""

from emulator.clock import Clock, ManualClock, SystemClock
from emulator.core import World
from emulator.errors import AwsError
from emulator.faults import Fault, FaultKind, Hold, When
from emulator.front import Front
from emulator.reply import Reply
from emulator.server import Emulator
from emulator.settings import LastPage, NoIterator, TableSettings

__all__ = [
    "AwsError",
    "Clock",
    "Emulator",
    "Fault",
    "FaultKind",
    "Front",
    "Hold",
    "LastPage",
    "ManualClock",
    "NoIterator",
    "Reply",
    "SystemClock",
    "TableSettings",
    "When",
    "World",
]
