"""What several tasks raised at once: a TaskGroup wraps even a single error into a group.

Whoever has an answer to an error has it for a group of nothing else, too.
"""

from typing import TypeVar

__all__ = ["leaves", "only"]

E = TypeVar("E", bound=BaseException)


def leaves(error: BaseException) -> list[BaseException]:
    """Return the errors of a group, of groups in it as well; of any other error, itself."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in leaves(part)]
    return [error]


def only(kind: type[E], error: BaseException) -> list[E] | None:
    """Return what was raised if all of it is of one kind; else None."""
    found = leaves(error)
    right = [it for it in found if isinstance(it, kind)]
    return right if len(right) == len(found) else None
