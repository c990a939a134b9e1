"""The annotation in which reservations outlive the scheduler."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.model.podgroup import ReservationCause
from scheduler.state.podgroups.podgroup import NamedPlace, read_reserved, write_reserved
from tests.support.case import Case, ids

# reserved places → the annotation
TEXTS = [
    Case("without places there is no annotation", [], ""),
    Case(
        "one of each",
        [("b", "n2", 0), ("a", "n1", 2), ("b", "n1", 0), ("b", "n2", 0)],
        '{"a":{"nodes":{"n1":1},"cause":"move"},'
        '"b":{"nodes":{"n1":1,"n2":2},"cause":"anticipated"}}',
    ),
    Case(
        "one word for several causes",
        [("a", "n", 1), ("a", "n", 2)],
        '{"a":{"nodes":{"n":2},"cause":"repair"}}',
    ),
]


@pytest.mark.parametrize("case", TEXTS, ids=ids)
def test_texts(case: Case[list[tuple[str, str, int]], str]) -> None:
    """Sorted, so that the same places give the same text."""
    places = [
        NamedPlace(podset, node, ReservationCause(cause)) for podset, node, cause in case.given
    ]

    assert write_reserved(places) == write_reserved(places[::-1]) == case.want


# an annotation → its places, or nothing if it is invalid
READ = [
    Case("an empty annotation has no places", "", {}),
    Case("a cause that there is not", '{"a":{"nodes":{"n":1},"cause":"x"}}', {"a": ["n"]}),
    Case("a place needs no cause", '{"a":{"nodes":{"n":2}}}', {"a": ["n", "n"]}),
    Case("a sub-group may have no nodes", '{"a":{}}', {"a": []}),
    Case("more than can be meant", '{"a":{"nodes":{"n":1000000000000}}}', {"a": ["n"] * 100_000}),
    Case("a text that is no JSON is invalid", "{", None),
    Case("a text that is no object is invalid", "[]", None),
    Case("a count that is no number is invalid", '{"a":{"nodes":{"n":"1"}}}', None),
]


@pytest.mark.parametrize("case", READ, ids=ids)
def test_reading(case: Case[str, dict[str, list[str]] | None]) -> None:
    """For an invalid text the fault is returned, and no error raised."""
    reserved = read_reserved(case.given)

    if case.want is None:
        assert isinstance(reserved, str)
    else:
        assert not isinstance(reserved, str)
        assert {
            podset: [place.node for place in places] for podset, places in reserved.items()
        } == case.want


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.just(ReservationCause.MOVE)),
        max_size=9,
    )
)
def test_what_is_written_is_read(places: list[tuple[str, str, ReservationCause]]) -> None:
    """In the order of PodSets and nodes."""
    reserved = read_reserved(write_reserved(NamedPlace(*place) for place in places))

    assert not isinstance(reserved, str)
    assert [tuple(place) for podset in sorted(reserved) for place in reserved[podset]] == sorted(
        places
    )
