"""Which namespaces may use which queues, as it was asked, and who waits for an answer.

A pair is a namespace and a queue, written as a `Key`. Of a queue that does not exist nothing is
asked: so there are never more pairs than namespaces times queues.
"""

from collections import Counter
from collections.abc import KeysView, Mapping
from collections.abc import Set as AbstractSet
from enum import IntEnum
from typing import Final, TypeAlias

from scheduler.core.model import Bar, Verdict
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import RUN_AI
from trainer_kai.api.resources import QUEUES
from trainer_kai.api.review import AccessReview, AccessSpec, AccessStatus, Attributes

__all__ = [
    "Pairs",
    "Permit",
    "Permits",
    "accounts_of",
    "may_not",
    "permits_of",
    "remedy",
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


class Permits:
    """The rule."""

    def __init__(self, known: Mapping[Key, Permit], *, are_needed: bool) -> None:
        """If they *are needed*, whoever is in no table waits."""
        self._known: Final = known
        self._are_needed: Final = are_needed

    def bar(self, pair: Key) -> Bar | None:
        """Return why nobody of a namespace may start in a queue; None if they may."""
        permit = self._known.get(pair)
        if permit == Permit.GRANTED or (permit is None and not self._are_needed):
            return None
        if permit == Permit.REFUSED:
            message = f"{may_not(pair)}. It can start when {remedy(pair)}"
        else:
            how = "is being asked" if permit is None else "could not be asked yet"
            message = (
                f"whether namespace {pair.namespace} may use queue {pair.name} {how}. "
                "It can start when that is known and granted"
            )
        return Bar(Verdict.FORBIDDEN_QUEUE, message, _WAKES_ON)


class Pairs:
    """Whose answer is of use to whom: kept up to date unit by unit."""

    def __init__(self) -> None:
        self._of: Final[dict[_Of, Key]] = {}
        self._users: Final[Counter[Key]] = Counter()

    @property
    def used(self) -> KeysView[Key]:
        """Return the pairs that any unit is of."""
        return self._users.keys()

    def put(self, of: _Of, pair: Key | None) -> None:
        """Let a unit be of a pair, or of none any more."""
        before = self._of.get(of)
        if before == pair:
            return
        if before is not None:
            del self._of[of]
            self._users[before] -= 1
            if not self._users[before]:
                del self._users[before]
        if pair is not None:
            self._of[of] = pair
            self._users[pair] += 1

    def among(self, pairs: AbstractSet[Key]) -> set[_Of]:
        """Return the units of some pairs."""
        return {of for of, pair in self._of.items() if pair in pairs} if pairs else set()


def may_not(pair: Key) -> str:
    """Say that a namespace may not use a queue."""
    return f"namespace {pair.namespace} may not use queue {pair.name}"


def remedy(pair: Key) -> str:
    """Say what would change it."""
    return (
        f"verb use on queues.scheduling.run.ai/{pair.name} is granted to group "
        f"{accounts_of(pair)} (a RoleBinding in namespace {pair.namespace})"
    )


def accounts_of(pair: Key) -> str:
    """Return the group that is asked for: all service accounts of the namespace."""
    return f"system:serviceaccounts:{pair.namespace}"


def review_of(pair: Key, permit: Permit) -> AccessReview:
    """Write down what is known of a pair as what was asked and answered."""
    what = Attributes(
        verb=_USE, group=RUN_AI, resource=QUEUES.plural, name=pair.name, namespace=pair.namespace
    )
    answer = AccessStatus(allowed=permit == Permit.GRANTED)
    return AccessReview(
        metadata=Meta(name=f"{pair.namespace}.{pair.name}"),
        spec=AccessSpec(resource_attributes=what, groups=(accounts_of(pair),)),
        status=None if permit == Permit.UNASKED else answer,
    )


def permits_of(review: AccessReview) -> dict[Key, Permit]:
    """Return what a review says of a pair; nothing if somebody asked for something else."""
    what = review.spec.resource_attributes
    pair = Key(what.namespace, what.name)
    is_ours = (what.verb, what.group, what.resource) == (_USE, RUN_AI, QUEUES.plural)
    if not is_ours or review.spec.groups != (accounts_of(pair),):
        return {}
    if review.status is None:
        return {pair: Permit.UNASKED}
    return {pair: Permit.GRANTED if review.status.allowed else Permit.REFUSED}
