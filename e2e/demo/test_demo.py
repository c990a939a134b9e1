"""The demo is the first thing a newcomer runs: it ends well and leaves nothing."""

import asyncio
import sys

from e2e.cluster import registry
from e2e.cluster.binaries import ensure_chain


async def test_the_demo_shows_who_waits_and_leaves_nothing() -> None:
    """Piped, it is plain text; it names every object, says why the pods wait, and exits 0."""
    ensure_chain()
    demo = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "e2e.demo", stdout=asyncio.subprocess.PIPE
    )

    output, _ = await demo.communicate()

    text = output.decode()
    assert demo.returncode == 0
    assert "\x1b" not in text
    assert text.count("Pending, no node: nobody schedules") == 6
    assert "does not exist before node is Ready" in text
    assert "6 pods wait" in text
    assert [name for name in registry.known() if name.startswith("demo")] == []
