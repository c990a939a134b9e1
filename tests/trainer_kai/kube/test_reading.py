"""One object that cannot be read spoils nothing but itself."""

import json

import msgspec
import pytest

from trainer_kai.api.decode import DecodeError
from trainer_kai.api.meta import Meta
from trainer_kai.kube.reading import UnreadableObject, read_object, read_page


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
    """The others of its page are read, and whose it is can be told."""
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
def test_what_is_nobodys_is_an_error(data: bytes) -> None:
    """Without so much as a name there is nothing to set aside."""
    with pytest.raises(DecodeError):
        read_object(Sized, data)
