"""Which namespaces may use which queues, and which PodGroups wait for an access review.

A namespace and a queue are written as one `Key`. For a queue that does not exist, or that is
annotated as open, there is no review: so there are at most namespaces times queues of them.
"""

from collections import Counter
from collections.abc import KeysView, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.model.rejections import PreFilterCause, PreFilterFailure
from scheduler.state.inputs import Permit
from trainer_kai.api.cluster_kinds import AccessReview, AccessSpec, AccessStatus, ResourceAttributes
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import RUN_AI
from trainer_kai.api.resources import QUEUES
from trainer_kai.policy.queueing.queue_access import (
    EffectiveQueueAccess,
    QueueAccessMode,
    closed_reason,
    grant_command,
    is_closed,
    service_accounts_group,
)

_PodGroupOrPod: TypeAlias = Key | int  # a PodGroup, or the row of a standalone pod
_USE_VERB: Final = "use"


class AccessQuestion(NamedTuple):
    """PodGroups of a namespace are in a queue that is not annotated as open."""

    namespace_and_queue: Key
    is_closed: bool  # else it has no annotation, and the default is open


_NO_QUESTIONS: Final[frozenset[AccessQuestion]] = frozenset()


class QueueAccessRule:
    def __init__(
        self, known: Mapping[Key, Permit], default_access: str, *, needs_permission: bool
    ) -> None:
        """With *needs_permission* a namespace that is not in *known* may not use a closed queue.

        *default_access* applies to queues without the annotation.
        """
        self._known: Final = known
        self._default_access: Final = default_access
        self._needs_permission: Final = needs_permission

    def question(self, pair: Key, stated_access: EffectiveQueueAccess) -> AccessQuestion | None:
        """Return the question for a namespace and queue; None if the queue is open to all."""
        if stated_access.mode is QueueAccessMode.OPEN:
            return None
        return AccessQuestion(pair, is_closed(stated_access, self._default_access))

    def is_refused(self, pair: Key, stated_access: EffectiveQueueAccess) -> bool:
        is_asked = self._known.get(pair) == Permit.REFUSED
        return is_asked and is_closed(stated_access, self._default_access)

    def prefilter_failure(
        self, pair: Key, stated_access: EffectiveQueueAccess
    ) -> PreFilterFailure | None:
        permit = self._known.get(pair)
        if not is_closed(stated_access, self._default_access) or permit == Permit.GRANTED:
            return None
        if permit is None and not self._needs_permission:
            return None
        if permit != Permit.REFUSED:
            is_pending = permit is None
            cause = (
                PreFilterCause.QUEUE_ACCESS_PENDING
                if is_pending
                else PreFilterCause.QUEUE_ACCESS_UNKNOWN
            )
            return PreFilterFailure(cause, (*pair,))
        namespace, queue = pair
        values = (
            namespace,
            queue,
            closed_reason(stated_access),
            service_accounts_group(namespace),
            _USE_VERB,
            f"{QUEUES.plural}.{RUN_AI}/{queue}",
            grant_command(queue, namespace),
        )
        return PreFilterFailure(PreFilterCause.QUEUE_CLOSED, values)


class AccessQuestions:
    def __init__(self) -> None:
        self._by_podgroup: Final[dict[_PodGroupOrPod, frozenset[AccessQuestion]]] = {}
        self._podgroup_counts: Final[Counter[AccessQuestion]] = Counter()

    @property
    def asked(self) -> KeysView[AccessQuestion]:
        return self._podgroup_counts.keys()

    def put(self, key: _PodGroupOrPod, *questions: AccessQuestion | None) -> None:
        current = frozenset(question for question in questions if question is not None)
        previous = self._by_podgroup.pop(key, _NO_QUESTIONS)
        if current:
            self._by_podgroup[key] = current
        for question in current - previous:
            self._podgroup_counts[question] += 1
        for question in previous - current:
            self._podgroup_counts[question] -= 1
            if not self._podgroup_counts[question]:
                del self._podgroup_counts[question]

    def podgroups_of(self, pairs: AbstractSet[Key]) -> set[_PodGroupOrPod]:
        if not pairs:
            return set()
        return {
            key
            for key, questions in self._by_podgroup.items()
            if any(it.namespace_and_queue in pairs for it in questions)
        }


def access_review(pair: Key, permit: Permit) -> AccessReview:
    attributes = ResourceAttributes(
        verb=_USE_VERB,
        group=RUN_AI,
        resource=QUEUES.plural,
        name=pair.name,
        namespace=pair.namespace,
    )
    status = AccessStatus(allowed=permit == Permit.GRANTED)
    return AccessReview(
        metadata=Meta(name=f"{pair.namespace}.{pair.name}"),
        spec=AccessSpec(
            resource_attributes=attributes, groups=(service_accounts_group(pair.namespace),)
        ),
        status=None if permit == Permit.UNANSWERED else status,
    )


def permits_from_review(review: AccessReview) -> dict[Key, Permit]:
    """Return the permit that a review grants or refuses; none if it asks another question."""
    attributes = review.spec.resource_attributes
    pair = Key(attributes.namespace, attributes.name)
    is_ours = (attributes.verb, attributes.group, attributes.resource) == (
        _USE_VERB,
        RUN_AI,
        QUEUES.plural,
    )
    if not is_ours or review.spec.groups != (service_accounts_group(pair.namespace),):
        return {}
    if review.status is None:
        return {pair: Permit.UNANSWERED}
    return {pair: Permit.GRANTED if review.status.allowed else Permit.REFUSED}
