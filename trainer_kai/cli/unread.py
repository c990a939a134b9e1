"""Files in which nothing is read: whoever names one means something that it does not say."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from typing import Final

from trainer_kai.cli.documents import Document
from trainer_kai.cli.kinds import KINDS, OPAQUE
from trainer_kai.errors import FieldError

__all__ = ["near", "spelt", "unread_files"]

_ALIKE: Final = 0.85
_TOLD: Final = 3


def unread_files(
    documents: Iterable[Document], read: Collection[tuple[str, str]]
) -> Iterator[FieldError]:
    """Yield the files that hold only kinds that nobody here knows; *read* are those to name."""
    kinds: dict[str, Counter[str]] = {}
    known: set[str] = set()
    for document in documents:
        kind = (document.group, document.kind)
        if kind in KINDS or kind in OPAQUE:
            known.add(document.file)
        else:
            kinds.setdefault(document.file, Counter())[f"{spelt(document)}{near(document)}"] += 1
    right = f"there are {', '.join(sorted({kind for _, kind in read}))}"
    for file, found in kinds.items():
        if file not in known:
            named = [f"{name} ({count})" for name, count in sorted(found.items())[:_TOLD]]
            more = f" and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
            yield FieldError(file, f"no kind in it is known: {', '.join(named)}{more}; {right}")


def spelt(document: Document) -> str:
    """Return its version and kind as it writes them."""
    version = document.fields.get("apiVersion", "")
    return f"{version} {document.kind}" if document.kind else "an object without a kind"


def near(document: Document) -> str:
    """Name the kind that a mistyped one resembles."""
    version = document.fields.get("apiVersion", "")
    known = [kind for (_, kind), it in KINDS.items() if it.resource.api_version == version]
    by_lower = {kind.lower(): kind for kind in known}
    found = get_close_matches(document.kind.lower(), by_lower, 1, _ALIKE)
    return f"; there is {version} {by_lower[found[0]]}" if found else ""
