"""Run every benchmark: `make bench`."""

import asyncio

from benchmarks import chain
from e2e.cluster.binaries import ensure_chain

if __name__ == "__main__":
    ensure_chain()  # outside the event loop, which would keep Ctrl-C from it
    asyncio.run(chain.main())
