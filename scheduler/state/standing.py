"""How units stand to each other: their queue, how much they matter, and who may be preempted."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from scheduler.state.gang import Gang
from scheduler.state.kin import Kin
from scheduler.state.terms import Terms
from trainer_kai.api.meta import Key
from trainer_kai.api.names import PREEMPTIBILITY, PRIORITY_CLASS_NAME, QUEUE
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.priority import PriorityClass
from trainer_kai.api.quota import ResourceQuota, ScopeRequirement
from trainer_kai.api.wishes import PREEMPTIBILITIES
from trainer_kai.policy.classes import PREEMPTIBLE_BELOW, Choosable, Quotas, scopes_of

__all__ = ["QuotaScopes", "Standing", "Standings"]


class Standing(NamedTuple):
    """Of one unit; no queue is the queue of nobody."""

    queue: str
    priority: int
    is_preemptible: bool
    refusal: str = ""  # why the class that was chosen does not count
    else_queue: str = ""  # whose it is if that queue takes no units


class QuotaScopes:
    """What the quotas of each namespace say of the priority of pods."""

    def __init__(self) -> None:
        self._of: Final[dict[str, dict[str, tuple[ScopeRequirement, ...]]]] = {}

    def of(self, namespace: str) -> Quotas:
        """Return it of one namespace, by the names of its quotas."""
        return self._of.get(namespace, {})

    def read(self, told: Mapping[Key, ResourceQuota | None]) -> set[str]:
        """Take quotas as they are now; return the namespaces for which that makes a difference."""
        changed = set()
        for key, quota in told.items():
            of = self._of.setdefault(key.namespace, {})
            scopes = scopes_of(quota) if quota else ()
            if scopes != of.get(key.name, ()):
                of[key.name] = scopes
                changed.add(key.namespace)
        for namespace in changed:  # by name, so that what is told does not depend on the past
            of = self._of[namespace]
            self._of[namespace] = {name: of[name] for name in sorted(of) if of[name]}
        return changed


class Standings:
    """Of gangs, and of pods on their own."""

    def __init__(
        self,
        classes: Mapping[str, PriorityClass],
        quotas: QuotaScopes,
        groups: Mapping[Key, PodGroup],
        terms: Terms,
    ) -> None:
        self._quotas: Final = quotas
        self._groups: Final = groups
        self._default_queue: Final = terms.default_queue
        self._classes: Final = Choosable(classes, terms.priority_classes)
        self._refusals: Final[dict[tuple[str, str], str | None]] = {}  # by namespace and class

    def of_gang(self, gang: Gang) -> Standing:
        """Return what a group says; of one that does not exist what its pods say."""
        if gang.group is None:
            strays = map(self.of_stray, gang.kins)
            said = min(strays, default=self._standing("", "", "", None))
            elsewhere = self._default_queue  # else nobody could take anything back from it
            return said._replace(is_preemptible=not gang.is_due, else_queue=elsewhere)
        spec, name = gang.group.spec, gang.group.spec.priority_class_name
        refusal = self._refusal(gang.key.namespace, name)
        if refusal is None or _is_admitted(gang, name):
            return self._standing(spec.queue, name, spec.preemptibility, None)
        told = None if _is_named(gang, name) else f"spec.priorityClassName: {refusal}"
        return self._standing(spec.queue, "", spec.preemptibility, told)

    def of_alone(self, kin: Kin) -> Standing:
        """Return what pods without a place in a group say themselves.

        In the queue of a group that they name they got their nodes: a label that no longer is, or
        never was, that of the group takes them to no other.
        """
        labels, own = kin.labels, kin.spec.priority_class_name
        name, refusal = labels.get(PRIORITY_CLASS_NAME) or own, None
        if name != own:
            refusal = self._refusal(kin.namespace, name)
            refusal = refusal and f"metadata.labels[{PRIORITY_CLASS_NAME}]: {refusal}"
        group = self._groups.get(Key(kin.namespace, kin.group)) if kin.group else None
        queue = group.spec.queue if group else labels.get(QUEUE) or self._default_queue
        return self._standing(queue, name, labels.get(PREEMPTIBILITY, ""), refusal)

    def of_stray(self, kin: Kin) -> Standing:
        """Return what pods say that run without a place in the group that they name.

        They can be preempted, whatever they say: else to name another group would be a way to stay.
        """
        return self.of_alone(kin)._replace(is_preemptible=True, refusal="")

    def _refusal(self, namespace: str, name: str) -> str | None:
        """Say why a class counts only if the pods' own specs name it; many ask for the same."""
        found = namespace, name
        if found not in self._refusals:
            quotas = self._quotas.of(namespace)
            self._refusals[found] = self._classes.refusal(name, quotas)
        return self._refusals[found]

    def _standing(self, queue: str, name: str, wish: str, refusal: str | None) -> Standing:
        """Let a class that was refused count for nothing: what runs with it gains nothing."""
        priority = self._classes.default if refusal else self._classes.value(name)
        is_preemptible = priority < PREEMPTIBLE_BELOW
        if wish in PREEMPTIBILITIES:
            is_preemptible = wish == PREEMPTIBILITIES[0]
        return Standing(queue, priority, is_preemptible, refusal or "")


def _is_admitted(gang: Gang, name: str) -> bool:
    """Say whether the API server admitted all pods of a gang with a class, and none is to come."""
    return _classes_of(gang.kins) == {name} and not any(map(gang.to_come, gang.later))


def _is_named(gang: Gang, name: str) -> bool:
    """Say whether a pod of a gang names a class, be it one that is to come."""
    return name in _classes_of([*gang.kins, *(kin for kin, _ in gang.later.values())])


def _classes_of(kins: Iterable[Kin]) -> set[str]:
    return {kin.spec.priority_class_name for kin in kins}
