"""Files without a known kind, which may be mistyped.

Kinds that are not needed are ignored, as in a dump of a cluster. A mistyped kind is an error, and
so is an input without any known kind.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from typing import Final

from trainer_kai.cli.input.documents import Document
from trainer_kai.cli.input.kinds import KINDS, UNUSED_KINDS
from trainer_kai.errors import FieldError

_SIMILARITY: Final = 0.85
_MAX_NAMED: Final = 3


def unread_files(
    documents: Iterable[Document], read: Collection[tuple[str, str]]
) -> Iterator[FieldError]:
    """Yield a fault for each file without a known kind; *read* are the kinds to list."""
    kinds: dict[str, Counter[str]] = {}
    known: set[str] = set()
    mistyped: set[str] = set()
    for document in documents:
        kind = (document.group, document.kind)
        if kind in KINDS or kind in UNUSED_KINDS:
            known.add(document.file)
            continue
        similar = similar_kind(document)
        kinds.setdefault(document.file, Counter())[f"{kind_text(document)}{similar}"] += 1
        if similar or not document.kind or not document.fields.get("apiVersion"):
            mistyped.add(document.file)
    expected = f"known kinds are {', '.join(sorted({kind for _, kind in read}))}"
    for file, counts in kinds.items():
        if file not in known and (not known or file in mistyped):
            named = [f"{name} ({count})" for name, count in sorted(counts.items())[:_MAX_NAMED]]
            more = f" and {len(counts) - _MAX_NAMED} more" if len(counts) > _MAX_NAMED else ""
            yield FieldError(file, f"has no known kind: {', '.join(named)}{more}; {expected}")


def kind_text(document: Document) -> str:
    """Return version and kind of an object as in its file."""
    version = document.fields.get("apiVersion")
    if not document.kind:
        return "an object without a kind"
    return f"{version} {document.kind}" if version else f"{document.kind} without an apiVersion"


def similar_kind(document: Document) -> str:
    """Return a hint with the known kind that a mistyped kind or version resembles; "" for none."""
    version = str(document.fields.get("apiVersion", ""))
    expected = [(it.resource.api_version, it.resource.kind) for it in KINDS.values()]
    kinds = {kind.lower(): kind for api_version, kind in expected if api_version == version}
    versions = [api_version for api_version, kind in expected if kind == document.kind]
    for kind in get_close_matches(document.kind.lower(), kinds, 1, _SIMILARITY):
        return f"; did you mean {version} {kinds[kind]}?"
    for api_version in get_close_matches(version, versions, 1, _SIMILARITY):
        return f"; did you mean {api_version} {document.kind}?"
    return ""
