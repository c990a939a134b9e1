"""What messages have in common: counts with their nouns and verbs, lists, and the longest length.

Pure, and without imports of ours: the scheduler's core writes its messages with it, too.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

_LONGEST: Final = 1024  # bytes, from the API's validation of Events; we use it for conditions too
_MORE: Final = "…"
_SINGULARS: Final = {"are": "is", "have": "has", "do": "does"}  # of verbs that do not just add an s


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return "1 node" or "3 nodes"; *plural* is for a noun that does not just add an s."""
    return f"{number} {noun_form(number, noun, plural)}"


def noun_form(number: float, noun: str, plural: str = "") -> str:
    return noun if number == 1 else plural or f"{noun}s"


def verb_form(number: float, verb: str) -> str:
    """Return a plural verb ("are", "have", "do", "fit") as it is, or its singular for one."""
    return verb if number != 1 else _SINGULARS.get(verb, f"{verb}s")


def listed_names(names: Sequence[str], most: int) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def first_listed(parts: Iterable[str], most: int = 3, between: str = ", ") -> str:
    """Return the first parts, and "…" for more of them: where their number says nothing."""
    first = [*islice(parts, most + 1)]
    return between.join(first[:most]) + (f", {_MORE}" if first[most:] else "")


def joined_by_or(parts: Sequence[str]) -> str:
    return ", ".join([*parts[:-1], f"or {parts[-1]}"] if parts[1:] else parts)


def capitalized(text: str) -> str:
    """Return a text with its first letter as a capital; unlike str.capitalize it keeps the rest."""
    return text[:1].upper() + text[1:]


def one_line(text: str) -> str:
    """Fold a text of a server or a user into one line, without control characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def truncated_message(message: str) -> str:
    """Cut a message to 1 KiB between two characters; names of users can make it long."""
    data = message.encode(errors="replace")
    if len(data) <= _LONGEST:
        return data.decode()
    return data[: _LONGEST - len(_MORE.encode())].decode(errors="ignore") + _MORE
