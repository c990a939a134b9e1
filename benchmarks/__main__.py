"""Run every benchmark: `make bench`."""

import asyncio
import sys

from benchmarks import chain, decode, groups, start, watch, webhook
from e2e.cluster.binaries import ensure_chain

if __name__ == "__main__":
    try:
        ensure_chain()  # outside the event loop, which would keep Ctrl-C from it
        for benchmark in (decode, start, watch, webhook, groups, chain):
            asyncio.run(benchmark.main())
    except KeyboardInterrupt:
        sys.exit(130)
