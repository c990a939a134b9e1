"""How units stand to each other: their queue, how much they matter, and who may be preempted."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from scheduler.state.gang import PodGroupRecord
from scheduler.state.kin import PodClass
from scheduler.state.terms import StateOptions
from trainer_kai.api.meta import Key
from trainer_kai.api.names import PREEMPTIBILITY, PRIORITY_CLASS_NAME, QUEUE
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.priority import PriorityClass
from trainer_kai.api.quota import ResourceQuota, ScopeRequirement
from trainer_kai.api.wishes import PREEMPTIBILITIES
from trainer_kai.policy.classes import (
    PREEMPTIBLE_BELOW,
    PriorityQuotas,
    SelectablePriorityClasses,
    priority_class_scopes,
)

__all__ = ["AttributeResolver", "PodGroupAttributes", "QuotaScopes"]


class PodGroupAttributes(NamedTuple):
    """Of one unit; no queue is the queue of nobody."""

    queue: str
    priority: int
    is_preemptible: bool
    refusal: str = ""  # why the class that was chosen does not count
    fallback_queue: str = ""  # whose it is if that queue takes no units


class QuotaScopes:
    """What the quotas of each namespace say of the priority of pods."""

    def __init__(self) -> None:
        self._by_namespace: Final[dict[str, dict[str, tuple[ScopeRequirement, ...]]]] = {}

    def of_namespace(self, namespace: str) -> PriorityQuotas:
        """Return it of one namespace, by the names of its quotas."""
        return self._by_namespace.get(namespace, {})

    def read(self, reported: Mapping[Key, ResourceQuota | None]) -> set[str]:
        """Take quotas as they are now; return the namespaces for which that makes a difference."""
        changed = set()
        for key, quota in reported.items():
            scopes_by_name = self._by_namespace.setdefault(key.namespace, {})
            scopes = priority_class_scopes(quota) if quota else ()
            if scopes != scopes_by_name.get(key.name, ()):
                scopes_by_name[key.name] = scopes
                changed.add(key.namespace)
        for namespace in changed:  # by name, so that what is told does not depend on the past
            scopes_by_name = self._by_namespace[namespace]
            self._by_namespace[namespace] = {
                name: scopes_by_name[name]
                for name in sorted(scopes_by_name)
                if scopes_by_name[name]
            }
        return changed


class AttributeResolver:
    """Of gangs, and of pods on their own."""

    def __init__(
        self,
        classes: Mapping[str, PriorityClass],
        quotas: QuotaScopes,
        groups: Mapping[Key, PodGroup],
        options: StateOptions,
    ) -> None:
        self._quotas: Final = quotas
        self._groups: Final = groups
        self._default_queue: Final = options.default_queue
        self._classes: Final = SelectablePriorityClasses(classes, options.priority_classes)
        self._refusals: Final[dict[tuple[str, str], str | None]] = {}  # by namespace and class

    def of_podgroup(self, record: PodGroupRecord) -> PodGroupAttributes:
        """Return what a group says; of one that does not exist what its pods say."""
        if record.group is None:
            candidates = map(self.of_misplaced, record.pod_classes)
            attributes = min(candidates, default=self._attributes("", "", "", None))
            fallback_queue = self._default_queue  # else nobody could take anything back from it
            return attributes._replace(
                is_preemptible=not record.is_pending_creation, fallback_queue=fallback_queue
            )
        spec, name = record.group.spec, record.group.spec.priority_class_name
        refusal = self._refusal(record.key.namespace, name)
        if refusal is None or _is_admitted(record, name):
            return self._attributes(spec.queue, name, spec.preemptibility, None)
        reported = None if _is_class_named(record, name) else f"spec.priorityClassName: {refusal}"
        return self._attributes(spec.queue, "", spec.preemptibility, reported)

    def of_standalone(self, pod_class: PodClass) -> PodGroupAttributes:
        """Return what pods without a place in a group say themselves.

        In the queue of a group that they name they got their nodes: a label that no longer is, or
        never was, that of the group takes them to no other.
        """
        labels, own = pod_class.labels, pod_class.spec.priority_class_name
        name, refusal = labels.get(PRIORITY_CLASS_NAME) or own, None
        if name != own:
            refusal = self._refusal(pod_class.namespace, name)
            refusal = refusal and f"metadata.labels[{PRIORITY_CLASS_NAME}]: {refusal}"
        group = (
            self._groups.get(Key(pod_class.namespace, pod_class.podgroup_name))
            if pod_class.podgroup_name
            else None
        )
        queue = group.spec.queue if group else labels.get(QUEUE) or self._default_queue
        return self._attributes(queue, name, labels.get(PREEMPTIBILITY, ""), refusal)

    def of_misplaced(self, pod_class: PodClass) -> PodGroupAttributes:
        """Return what pods say that run without a place in the group that they name.

        They can be preempted, whatever they say: else to name another group would be a way to stay.
        """
        return self.of_standalone(pod_class)._replace(is_preemptible=True, refusal="")

    def _refusal(self, namespace: str, name: str) -> str | None:
        """Say why a class counts only if the pods' own specs name it; many ask for the same."""
        namespace_and_class = namespace, name
        if namespace_and_class not in self._refusals:
            quotas = self._quotas.of_namespace(namespace)
            self._refusals[namespace_and_class] = self._classes.refusal(name, quotas)
        return self._refusals[namespace_and_class]

    def _attributes(
        self, queue: str, name: str, preemptibility: str, refusal: str | None
    ) -> PodGroupAttributes:
        """Let a class that was refused count for nothing: what runs with it gains nothing."""
        priority = self._classes.default if refusal else self._classes.value(name)
        is_preemptible = priority < PREEMPTIBLE_BELOW
        if preemptibility in PREEMPTIBILITIES:
            is_preemptible = preemptibility == PREEMPTIBILITIES[0]
        return PodGroupAttributes(queue, priority, is_preemptible, refusal or "")


def _is_admitted(record: PodGroupRecord, name: str) -> bool:
    """Say whether the API server admitted all pods of a gang with a class, and none is to come."""
    return _priority_classes_of(record.pod_classes) == {name} and not any(
        map(record.expected_count, record.expected)
    )


def _is_class_named(record: PodGroupRecord, name: str) -> bool:
    """Say whether a pod of a gang names a class, be it one that is to come."""
    return name in _priority_classes_of(
        [*record.pod_classes, *(pod_class for pod_class, _ in record.expected.values())]
    )


def _priority_classes_of(class_table: Iterable[PodClass]) -> set[str]:
    return {pod_class.spec.priority_class_name for pod_class in class_table}
