"""Signs of life of forked processes, in memory that they share with their parent.

A forked process that hangs cannot say so, and neither a queue nor a database need be up for this.
"""

import mmap
import os
import struct
import time

_PLACE = struct.Struct("qd")  # whose, and when on the monotonic clock, which all processes share
_PLACES = 1024


class Pulse:
    """When each process last gave a sign of life. Made before the fork."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _PLACE.size * _PLACES)

    def beat(self) -> None:
        """This process is at work."""
        pid = os.getpid()
        _PLACE.pack_into(self._memory, _PLACE.size * (pid % _PLACES), pid, time.monotonic())

    def silent_s(self, pid: int) -> float | None:
        """Seconds since the last sign of this process; None if it gave none."""
        owner, at = _PLACE.unpack_from(self._memory, _PLACE.size * (pid % _PLACES))
        return time.monotonic() - at if owner == pid else None


pulse = Pulse()
