"""Which namespaces may use which queues, as it was asked, and which units wait for an answer.

A pair is a namespace and a queue, written as a `Key`. Of a queue that does not exist, or that says
that it is open, nothing is asked: so there are never more pairs than namespaces times queues.
"""

from collections import Counter
from collections.abc import KeysView, Mapping
from collections.abc import Set as AbstractSet
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.model import Bar, Verdict
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import RUN_AI
from trainer_kai.api.resources import QUEUES
from trainer_kai.api.review import AccessReview, AccessSpec, AccessStatus, Attributes
from trainer_kai.policy.access import (
    Access,
    Said,
    accounts_of,
    grant_command,
    is_closed,
    why_closed,
)

__all__ = [
    "Pairs",
    "Permit",
    "Permits",
    "Use",
    "permits_of",
    "review_of",
]

_Of: TypeAlias = Key | int  # a gang, or the slot of a pod on its own

_WAKES_ON: Final = frozenset({"permits"})
_USE: Final = "use"


class Permit(IntEnum):
    """What is known of a pair; of one that is in no table nothing is."""

    GRANTED = 0
    REFUSED = 1
    UNASKED = 2  # it was tried, and there was no answer yet


class Use(NamedTuple):
    """Units of a namespace are in a queue that does not say that it is open."""

    pair: Key
    is_closed: bool  # else it says nothing, and is open here


_NO_USE: Final[frozenset[Use]] = frozenset()


class Permits:
    """The rule."""

    def __init__(self, known: Mapping[Key, Permit], unannotated: str, *, are_needed: bool) -> None:
        """If they *are needed*, a namespace in no table may not use a closed queue yet.

        A queue that says nothing is open or closed as *unannotated* has it.
        """
        self._known: Final = known
        self._unannotated: Final = unannotated
        self._are_needed: Final = are_needed

    def use(self, pair: Key, said: Said) -> Use | None:
        """Return what is to be asked of a queue that says this; None for nothing."""
        if said.access is Access.OPEN:
            return None
        return Use(pair, is_closed(said, self._unannotated))

    def is_refused(self, pair: Key, said: Said) -> bool:
        """Say whether a namespace was refused the use of a queue that says this."""
        is_asked = self._known.get(pair) == Permit.REFUSED
        return is_asked and is_closed(said, self._unannotated)

    def bar(self, pair: Key, said: Said) -> Bar | None:
        """Return why no unit of a namespace may start in a queue; None if units may."""
        permit = self._known.get(pair)
        if not is_closed(said, self._unannotated) or permit == Permit.GRANTED:
            return None
        if permit is None and not self._are_needed:
            return None
        if permit == Permit.REFUSED:
            namespace, queue = pair
            message = (
                f"namespace {namespace} may not use queue {queue}, which is closed "
                f"({why_closed(said)}). It can start when group {accounts_of(namespace)} is "
                f"granted the verb {_USE} on {QUEUES.plural}.{RUN_AI}/{queue} in that namespace: "
                f"{grant_command(queue, namespace)}"
            )
        else:
            how = "is being asked" if permit is None else "could not be asked yet"
            message = (
                f"whether namespace {pair.namespace} may use queue {pair.name} {how}. "
                "It can start when that is known and granted"
            )
        return Bar(Verdict.FORBIDDEN_QUEUE, message, _WAKES_ON)


class Pairs:
    """Which units need which answer: kept up to date unit by unit."""

    def __init__(self) -> None:
        self._of: Final[dict[_Of, frozenset[Use]]] = {}
        self._units: Final[Counter[Use]] = Counter()

    @property
    def used(self) -> KeysView[Use]:
        """Return the pairs that any unit is of, and whether their queues are closed."""
        return self._units.keys()

    def put(self, of: _Of, *uses: Use | None) -> None:
        """Let a unit be of some pairs, or of none any more."""
        now = frozenset(use for use in uses if use is not None)
        before = self._of.pop(of, _NO_USE)
        if now:
            self._of[of] = now
        for use in now - before:
            self._units[use] += 1
        for use in before - now:
            self._units[use] -= 1
            if not self._units[use]:
                del self._units[use]

    def among(self, pairs: AbstractSet[Key]) -> set[_Of]:
        """Return the units of some pairs."""
        if not pairs:
            return set()
        return {of for of, uses in self._of.items() if any(it.pair in pairs for it in uses)}


def review_of(pair: Key, permit: Permit) -> AccessReview:
    """Write down what is known of a pair as what was asked and answered."""
    what = Attributes(
        verb=_USE, group=RUN_AI, resource=QUEUES.plural, name=pair.name, namespace=pair.namespace
    )
    answer = AccessStatus(allowed=permit == Permit.GRANTED)
    return AccessReview(
        metadata=Meta(name=f"{pair.namespace}.{pair.name}"),
        spec=AccessSpec(resource_attributes=what, groups=(accounts_of(pair.namespace),)),
        status=None if permit == Permit.UNASKED else answer,
    )


def permits_of(review: AccessReview) -> dict[Key, Permit]:
    """Return what a review says of a pair; nothing if somebody asked for something else."""
    what = review.spec.resource_attributes
    pair = Key(what.namespace, what.name)
    is_ours = (what.verb, what.group, what.resource) == (_USE, RUN_AI, QUEUES.plural)
    if not is_ours or review.spec.groups != (accounts_of(pair.namespace),):
        return {}
    if review.status is None:
        return {pair: Permit.UNASKED}
    return {pair: Permit.GRANTED if review.status.allowed else Permit.REFUSED}
