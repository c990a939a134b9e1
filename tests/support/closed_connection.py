"""Whether the other end of a connection closes it."""

import asyncio


async def is_closed(reader: asyncio.StreamReader, within_s: float = 60.0) -> bool:
    """Say whether a connection ends."""
    try:
        async with asyncio.timeout(within_s):
            return not await reader.read()
    except ConnectionError:
        return True
    except TimeoutError:
        return False
