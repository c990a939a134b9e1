"""What several tasks raised at once: a TaskGroup wraps even a single error into a group.

Whoever has an answer to an error has it for a group of nothing else, too.
"""

from typing import TypeVar

__all__ = ["errors_if_all_are", "errors_in_group"]

E = TypeVar("E", bound=BaseException)


def errors_in_group(error: BaseException) -> list[BaseException]:
    """Return the errors of a group, of groups in it as well; of any other error, itself."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in errors_in_group(part)]
    return [error]


def errors_if_all_are(kind: type[E], error: BaseException) -> list[E] | None:
    """Return what was raised if all of it is of one kind; else None."""
    found = errors_in_group(error)
    right = [it for it in found if isinstance(it, kind)]
    return right if len(right) == len(found) else None
