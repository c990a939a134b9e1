"""Control of Python's garbage collector, which stops the process while it runs.

The state of a large cluster is millions of objects with a long life, and a plan for thousands of
gangs creates a million more that reference counting frees. A collection takes 0.1 s and more, and
finds nothing (`python -m benchmarks event_loop`). With 5,000 TrainJobs in the webhook it takes
0.03 s, in which reviews queue up (`python -m benchmarks webhook`).
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def freeze_known_objects() -> None:
    gc.collect()
    gc.freeze()


@contextmanager
def without_collection() -> Iterator[None]:
    """Also for other threads; must not be nested."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
