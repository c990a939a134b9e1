"""Blocks of ports."""

import fcntl
import socket
from pathlib import Path

import pytest

from e2e.cluster.ports import BLOCK_SIZE, PortBlock, reserve_ports


def numbers(block: PortBlock) -> set[int]:
    """Return every port of a block."""
    return set(range(block.first, block.first + BLOCK_SIZE))


def is_locked(file: Path) -> bool:
    """Say whether somebody holds a lock; other clusters of this machine have no say in it."""
    with file.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_blocks_that_are_held_never_overlap(tmp_path: Path) -> None:
    """Nothing listens on them yet, and still a second cluster gets other ports."""
    one, other = reserve_ports(tmp_path), reserve_ports(tmp_path)

    assert not numbers(one) & numbers(other)
    one.close()
    other.close()


def test_a_block_is_given_back(tmp_path: Path) -> None:
    """What one cluster had, the next one can have, as soon as it is closed and no sooner."""
    block = reserve_ports(tmp_path)
    held = is_locked(tmp_path / f"{block.first}.lock")

    block.close()

    assert (held, is_locked(tmp_path / f"{block.first}.lock")) == (True, False)


def test_a_block_in_use_is_left_out(tmp_path: Path) -> None:
    """One port that somebody listens on spoils its whole block, locked or not."""
    one = reserve_ports(tmp_path)
    one.close()
    last = one.first + BLOCK_SIZE - 1  # a cluster takes its ports from the front
    with socket.create_server(("127.0.0.1", last)):
        other = reserve_ports(tmp_path)

    assert last not in numbers(other)
    other.close()


def test_a_block_is_taken_port_by_port(tmp_path: Path) -> None:
    """Every port is given out once; to ask for more is an error and not somebody else's port."""
    block = reserve_ports(tmp_path)

    taken = [block.take() for _ in range(BLOCK_SIZE)]

    assert taken == sorted(numbers(block))
    with pytest.raises(RuntimeError, match=f"all {BLOCK_SIZE} ports of this cluster are taken"):
        block.take()
    block.close()
