"""Lines of a watch come in pieces: a line that is lost is a change that no test saw."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, cast

import pytest

from e2e.cluster.api import _lines

if TYPE_CHECKING:
    import aiohttp

WATCHED = b'{"type":"ADDED"}\n{"type":"MODIFIED"}\n{"type":"DELE'


class Pieces:
    """A response body that comes in the given pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    async def iter_any(self) -> AsyncIterator[bytes]:
        """Yield each piece as it came."""
        for piece in self._pieces:
            yield piece


@pytest.mark.parametrize("size", range(1, len(WATCHED) + 1))
async def test_a_line_is_whole_wherever_it_was_cut(size: int) -> None:
    """Pieces end anywhere; lines come out whole, and the beginning of one is no line."""
    pieces = Pieces(*(WATCHED[at : at + size] for at in range(0, len(WATCHED), size)))

    lines = [line async for line in _lines(cast("aiohttp.StreamReader", pieces))]

    assert lines == [b'{"type":"ADDED"}', b'{"type":"MODIFIED"}']
