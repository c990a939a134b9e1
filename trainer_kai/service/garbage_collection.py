"""When Python may collect garbage: while it does, everything stands still.

What is known of a large cluster are millions of objects that live on, and a plan for thousands of
gangs makes a million more that are gone when it is carried out. To go through them takes 0.1 s and
more each time, and finds nothing (`python -m benchmarks event_loop`). The same goes for 5,000
TrainJobs that the webhook has read: 0.03 s, in which reviews pile up (`python -m benchmarks
webhook`).
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["freeze_known_objects", "without_collection"]


def freeze_known_objects() -> None:
    """Never again go through what is known by now."""
    gc.collect()
    gc.freeze()


@contextmanager
def without_collection() -> Iterator[None]:
    """Collect no garbage, also not in other threads; not to be used twice at a time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
