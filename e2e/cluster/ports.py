"""Free ports that stay ours: a locked block below the range the kernel hands out to clients.

Asking for port 0 and closing it again loses the port to any outgoing connection before the program
that needs it starts. Clusters side by side therefore each lock one block of numbers; the lock is a
file lock, so it ends with the process, whatever ends that.
"""

import fcntl
import os
import socket
from pathlib import Path
from typing import Final

from e2e.cluster.paths import cache_root

__all__ = ["BLOCK_SIZE", "PortBlock", "reserve_ports"]

BLOCK_SIZE: Final = 32
_FIRST: Final = 20_000
_LAST: Final = 32_000  # Linux gives clients ports from 32768 up


class PortBlock:
    """Numbers nobody else here will use until `close`."""

    def __init__(self, first: int, lock_fd: int) -> None:
        self.first = first
        self._next = first
        self._lock_fd = lock_fd

    def take(self) -> int:
        """Return the next unused port of the block."""
        if self._next == self.first + BLOCK_SIZE:
            message = f"all {BLOCK_SIZE} ports of this cluster are taken"
            raise RuntimeError(message)
        self._next += 1
        return self._next - 1

    def close(self) -> None:
        """Give the block back."""
        os.close(self._lock_fd)


def reserve_ports(folder: Path | None = None) -> PortBlock:
    """Lock the first block whose every port is free on loopback."""
    folder = folder or cache_root() / "ports"
    folder.mkdir(parents=True, exist_ok=True)
    for first in range(_FIRST, _LAST, BLOCK_SIZE):
        lock_fd = os.open(folder / f"{first}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock_fd)
            continue
        if all(_is_free(port) for port in range(first, first + BLOCK_SIZE)):
            return PortBlock(first, lock_fd)
        os.close(lock_fd)
    message = f"no free block of {BLOCK_SIZE} ports between {_FIRST} and {_LAST} on 127.0.0.1"
    raise RuntimeError(message)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
