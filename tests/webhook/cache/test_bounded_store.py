"""What is kept when the store is full: no object is lost to another namespace."""

from trainer_kai.api.meta import Key
from webhook.cache.runtimes import BoundedStore, text_bytes


def filled(*sizes: tuple[str, int]) -> BoundedStore[int]:
    """Return what is kept of 100 bytes; each key is of a namespace and has its number."""
    kept = BoundedStore[int](100, 60)
    for number, (namespace, size) in enumerate(sizes):
        kept.put(Key(namespace, str(number)), number, size)
    return kept


def numbers(kept: BoundedStore[int]) -> list[int]:
    return [
        number
        for number in range(6)
        for namespace in ("", "a", "b", "c")
        if kept.get(Key(namespace, str(number))) is not None
    ]


def test_what_fits_is_kept() -> None:
    kept = filled(("a", 40), ("b", 60))

    assert numbers(kept) == [0, 1]
    assert (kept.held_bytes, kept.left_out, len(kept)) == (100, 0, 2)


def test_a_namespace_pushes_out_its_own() -> None:
    """What comes last finds no room; the others lose nothing."""
    kept = filled(("b", 10), ("a", 40), ("a", 40), ("a", 20))

    assert numbers(kept) == [0, 1, 2]
    assert kept.left_out == 1


def test_the_largest_namespace_makes_room_for_the_others() -> None:
    """Until it has no more than they would have."""
    kept = filled(("a", 30), ("a", 30), ("a", 40), ("b", 30), ("c", 20))

    assert numbers(kept) == [2, 3, 4]
    assert kept.left_out == 2


def test_what_has_no_namespace_makes_room_for_nothing() -> None:
    """Administrators write it."""
    kept = filled(("", 50), ("", 40), ("a", 10), ("b", 10))

    assert numbers(kept) == [0, 1, 2]


def test_what_is_too_large_is_left_out_until_it_is_smaller() -> None:
    """Its last state counts, and what is gone is forgotten."""
    kept = filled(("a", 61))
    before = kept.left_out, kept.held_bytes
    kept.put(Key("a", "0"), 7, 60)
    after = kept.get(Key("a", "0")), kept.left_out, kept.held_bytes
    kept.put(Key("a", "0"), 8, 61)
    again = kept.get(Key("a", "0")), kept.left_out, kept.held_bytes
    for _ in range(2):
        kept.drop(Key("a", "0"))

    assert before == (1, 0)
    assert after == (7, 0, 60)
    assert again == (None, 1, 0)
    assert (kept.left_out, kept.held_bytes, len(kept)) == (0, 0, 0)


def test_texts_are_counted_as_they_lie_in_memory() -> None:
    """A character beyond ASCII may take four bytes."""
    assert text_bytes(["abc", "ä"]) == 7
