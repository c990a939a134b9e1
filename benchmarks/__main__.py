"""Run every benchmark: `make bench`."""

import asyncio
import sys

from benchmarks import chain
from e2e.cluster.binaries import ensure_chain

if __name__ == "__main__":
    try:
        ensure_chain()  # outside the event loop, which would keep Ctrl-C from it
        asyncio.run(chain.main())
    except KeyboardInterrupt:
        sys.exit(130)
