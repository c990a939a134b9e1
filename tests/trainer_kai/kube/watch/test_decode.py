"""A stream is cut into lines, and pages and lines are read into objects wherever it was cut."""

import json

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from tests.support.case import Case, ids
from trainer_kai.api.decode import DecodeError
from trainer_kai.api.meta import Meta
from trainer_kai.kube.watch.decode import LineSplitter, UnreadableObject, read_object, read_page

CASES = [
    Case("a line in one piece", [b"one\n"], [b"one"]),
    Case("two lines in one piece", [b"one\ntwo\n"], [b"one", b"two"]),
    Case("a line in three pieces", [b"o", b"n", b"e\n"], [b"one"]),
    Case("an end of its own", [b"one", b"\n", b"two", b"\n"], [b"one", b"two"]),
    Case("a line that is never finished is none", [b"one\ntw", b"o"], [b"one"]),
    Case("empty lines are none", [b"\n\none\n\n"], [b"one"]),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_lines(case: Case[list[bytes], list[bytes]]) -> None:
    """Lines come out as soon as they are whole."""
    lines = LineSplitter()

    assert [line for piece in case.given for line in lines.feed(piece)] == case.want


@given(st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line)), st.data())
def test_it_does_not_matter_where_a_stream_is_cut(whole: list[bytes], data: st.DataObject) -> None:
    """The same bytes give the same lines, however they arrive."""
    rest = b"".join(line + b"\n" for line in whole)
    lines, found = LineSplitter(), []
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        found += lines.feed(rest[:size])
        rest = rest[size:]

    assert found == whole


class Sized(msgspec.Struct, frozen=True):
    """An object with a number in it."""

    metadata: Meta
    size: int = 0


def _object(name: str, size: object) -> dict[str, object]:
    return {"metadata": {"name": name, "resourceVersion": "7"}, "size": size}


def test_a_page_is_read_whole() -> None:
    """Every object of a page comes out, in its order."""
    page = {"metadata": {"resourceVersion": "9"}, "items": [_object("a", 1), _object("b", 2)]}

    read = read_page(Sized, json.dumps(page).encode())

    assert read.metadata.resource_version == "9"
    assert [item.size for item in read.items if isinstance(item, Sized)] == [1, 2]


def test_an_unreadable_object_is_set_aside() -> None:
    """The others of its page are read, and its key is known."""
    items = [_object("a", 1), _object("b", "many"), _object("c", 3)]
    page = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": items}

    read = read_page(Sized, json.dumps(page).encode())

    assert read.metadata.continue_token == "more"
    first, second, third = read.items
    assert isinstance(first, Sized)
    assert isinstance(third, Sized)
    assert isinstance(second, UnreadableObject)
    assert second.metadata.name == "b"
    assert second.error.fault.path == "size"


def test_a_list_without_items_is_empty() -> None:
    """Go writes null for a list of none."""
    assert (
        list(read_page(Sized, b'{"metadata": {"resourceVersion": "1"}, "items": null}').items) == []
    )


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"size": "many"}'])
def test_what_has_no_metadata_is_an_error(data: bytes) -> None:
    """Without so much as a name there is nothing to set aside."""
    with pytest.raises(DecodeError):
        read_object(Sized, data)
