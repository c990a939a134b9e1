"""Blocks of ports."""

import socket

from e2e.cluster.ports import BLOCK_SIZE, PortBlock, reserve_ports


def numbers(block: PortBlock) -> set[int]:
    """Return every port of a block."""
    return set(range(block.first, block.first + BLOCK_SIZE))


def is_locked(first: int) -> bool:
    """Say whether somebody holds a block; other clusters of this machine have no say in it."""
    with socket.socket(socket.AF_UNIX) as lock:
        try:
            lock.bind(f"\0trainer-kai-ports-{first}")
        except OSError:
            return True
    return False


def test_blocks_that_are_held_never_overlap() -> None:
    """Nothing listens on them yet, and still a second cluster gets other ports."""
    one, other = reserve_ports(), reserve_ports()

    assert not numbers(one) & numbers(other)
    one.close()
    other.close()


def test_a_block_is_given_back() -> None:
    """What one cluster had, the next one can have, as soon as it is closed and no sooner."""
    block = reserve_ports()
    held = is_locked(block.first)

    block.close()

    assert (held, is_locked(block.first)) == (True, False)


def test_a_block_in_use_is_left_out() -> None:
    """One port that somebody listens on spoils its whole block, locked or not."""
    one = reserve_ports()
    one.close()
    last = one.first + BLOCK_SIZE - 1  # a cluster takes its ports from the front
    with socket.create_server(("127.0.0.1", last)):
        other = reserve_ports()

    assert last not in numbers(other)
    other.close()
