"""When Python may look for garbage, and when not."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from trainer_kai.service.garbage_collection import freeze_known_objects, without_collection


class _Circle:
    """An object in a circle with itself: garbage once nothing else refers to it."""

    itself: object


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_is_known_is_not_looked_through_again() -> None:
    circle = _Circle()
    circle.itself = circle
    garbage = weakref.ref(circle)
    known: list[dict[str, str]] = [{} for _ in range(1000)]
    was = gc.get_freeze_count()

    del circle
    freeze_known_objects()

    assert gc.get_freeze_count() - was > len(known)
    assert garbage() is None


def test_nothing_is_looked_for_meanwhile() -> None:
    with without_collection():
        assert not gc.isenabled()

    assert gc.isenabled()
