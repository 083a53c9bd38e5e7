"""An embedded AWS for tests: DynamoDB with faithful streams, S3, over real HTTP.

    from emulator import Emulator

    with Emulator(shards=8) as aws:
        dynamodb = aws.client("dynamodb")

Stands alone: it imports nothing of the rest of the project.
"""

from emulator.clock import Clock, ManualClock, SystemClock
from emulator.core import World
from emulator.errors import AwsError
from emulator.server import Emulator
from emulator.settings import LastPage, NoIterator, StreamSettings

__all__ = [
    "AwsError",
    "Clock",
    "Emulator",
    "LastPage",
    "ManualClock",
    "NoIterator",
    "StreamSettings",
    "SystemClock",
    "World",
]
