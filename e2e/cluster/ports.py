"""Free ports that stay ours: a locked block below the range the kernel hands out to clients.

Asking for port 0 and closing it again loses the port to any outgoing connection before the program
that needs it starts. Clusters side by side therefore each lock one block of numbers. The lock is a
socket in the abstract namespace: it holds for the whole machine, needs no file, and ends with the
process, whatever ends that.
"""

import socket
from typing import Final

BLOCK_SIZE: Final = 32
FIRST_PORT: Final = 20_000
_LAST: Final = 32_000  # by default Linux gives clients ports from 32768 up


class PortBlock:
    """Numbers nobody else here will use until `close`."""

    def __init__(self, first: int, lock: socket.socket) -> None:
        self.first = first
        self._free = list(range(first, first + BLOCK_SIZE))
        self._lock = lock

    def next_port(self) -> int:
        """Return the lowest unused port of the block."""
        if not self._free:
            message = f"all {BLOCK_SIZE} ports of this cluster are taken"
            raise RuntimeError(message)
        return self._free.pop(0)

    def put_back(self, port: int) -> None:
        """Let a port be taken again, after all others."""
        self._free.append(port)

    def close(self) -> None:
        """Give the block back."""
        self._lock.close()


def reserve_ports() -> PortBlock:
    """Lock the first block whose every port is free on loopback."""
    for first in range(FIRST_PORT, _LAST, BLOCK_SIZE):
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f"\0trainer-kai-ports-{first}")
        except OSError:
            lock.close()
            continue
        if all(_is_free(port) for port in range(first, first + BLOCK_SIZE)):
            return PortBlock(first, lock)
        lock.close()
    message = f"no free block of {BLOCK_SIZE} ports between {FIRST_PORT} and {_LAST} on 127.0.0.1"
    raise RuntimeError(message)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
