"""Run every benchmark: `make bench`."""

import asyncio

from benchmarks import chain

if __name__ == "__main__":
    asyncio.run(chain.main())
