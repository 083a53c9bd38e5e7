"""`dynaduck demo`: the whole product on one machine, from a full table to the proof of its copy.

The only part of the connector that knows the emulator exists, and that only as a process.
"""

from connector.demo.story import run_demo

__all__ = ["run_demo"]
