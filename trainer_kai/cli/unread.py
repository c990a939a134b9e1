"""Files in which nothing is read: whoever names one may mean something that it does not say.

Kinds that nobody needs are left out, for whoever dumps a cluster has them; a kind that is mistyped
is refused, and so is an input in which there is nothing else.
"""

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
    """Yield the files that nobody can mean so; *read* are the kinds to name."""
    kinds: dict[str, Counter[str]] = {}
    known: set[str] = set()
    mistyped: set[str] = set()
    for document in documents:
        kind = (document.group, document.kind)
        if kind in KINDS or kind in OPAQUE:
            known.add(document.file)
            continue
        resembled = near(document)
        kinds.setdefault(document.file, Counter())[f"{spelt(document)}{resembled}"] += 1
        if resembled or not document.kind or not document.fields.get("apiVersion"):
            mistyped.add(document.file)
    right = f"there are {', '.join(sorted({kind for _, kind in read}))}"
    for file, found in kinds.items():
        if file not in known and (not known or file in mistyped):
            named = [f"{name} ({count})" for name, count in sorted(found.items())[:_TOLD]]
            more = f" and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
            yield FieldError(file, f"no kind in it is known: {', '.join(named)}{more}; {right}")


def spelt(document: Document) -> str:
    """Return its version and kind as it writes them."""
    version = document.fields.get("apiVersion")
    if not document.kind:
        return "an object without a kind"
    return f"{version} {document.kind}" if version else f"{document.kind} without an apiVersion"


def near(document: Document) -> str:
    """Name the kind that one resembles of which the kind or the version is mistyped."""
    version = str(document.fields.get("apiVersion", ""))
    right = [(it.resource.api_version, it.resource.kind) for it in KINDS.values()]
    kinds = {kind.lower(): kind for at, kind in right if at == version}
    versions = [at for at, kind in right if kind == document.kind]
    for kind in get_close_matches(document.kind.lower(), kinds, 1, _ALIKE):
        return f"; there is {version} {kinds[kind]}"
    for at in get_close_matches(version, versions, 1, _ALIKE):
        return f"; there is {at} {document.kind}"
    return ""
