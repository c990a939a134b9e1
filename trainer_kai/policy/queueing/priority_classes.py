"""Which PriorityClasses a label may choose.

The API server lets a pod name a class in its spec only if admission and the ResourceQuotas of the
namespace allow it. It does not check labels. So a label may choose no system class, no class that a
quota of the namespace counts, and only classes that the configuration lists; the same holds for a
PodGroup. A class that all pods name in their spec was admitted, and counts once all of them exist.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final, TypeAlias

from trainer_kai.api.cluster_kinds import PriorityClass, ResourceQuota, ScopeRequirement
from trainer_kai.api.matching import accepted_values
from trainer_kai.api.text import first_listed

PriorityQuotas: TypeAlias = Mapping[str, Collection[ScopeRequirement]]  # of one namespace, by name

DEFAULT_PRIORITY_CLASS: Final = "train"  # of a PodGroup without another one, as in KAI
SYSTEM_CLASS_PREFIX: Final = "system-"  # no other class may be called so
PREEMPTIBLE_BELOW: Final = 100  # of a PodGroup that does not say itself whether it can be preempted

_DEFAULT_PRIORITY: Final = 50
_SYSTEM_PRIORITY: Final = 10**9  # from here on classes are the system's and our processes'
_SCOPE: Final = "PriorityClass"
_MOST_LISTED: Final = 10
_NO_QUOTAS: Final[PriorityQuotas] = MappingProxyType({})


def default_priority(classes: Mapping[str, PriorityClass]) -> int:
    # Of several default classes Kubernetes takes the one with the smallest value.
    defaults = (one.value for one in classes.values() if one.global_default)
    return min(defaults, default=_DEFAULT_PRIORITY)


def priority_class_scopes(quota: ResourceQuota) -> tuple[ScopeRequirement, ...]:
    spec, selector = quota.spec, quota.spec.scope_selector
    scopes = tuple(ScopeRequirement(scope_name=it, operator="Exists") for it in spec.scopes)
    all_scopes = scopes + (selector.match_expressions if selector else ())
    return tuple(it for it in all_scopes if it.scope_name == _SCOPE)


class SelectablePriorityClasses:
    def __init__(self, classes: Mapping[str, PriorityClass], offered: Collection[str] = ()) -> None:
        self._classes: Final = classes
        self._offered: Final = frozenset(offered)  # none named: all
        self.default: Final = default_priority(classes)

    def value(self, name: str) -> int:
        """Return the priority of a class; that of the default one if there is no such class."""
        priority_class = self._classes.get(name)
        return self.default if priority_class is None else priority_class.value

    def exists(self, name: str) -> bool:
        return name in self._classes

    def refusal(self, name: str, quotas: PriorityQuotas = _NO_QUOTAS) -> str | None:
        """Say why a label, or a PodGroup, may not choose a class where these quotas count.

        It follows the path of the field. The remedy is first, because tools cut long messages.
        """
        fact = self.refusal_fact(name, quotas)
        if fact is None:
            return None
        allowed = (it for it in sorted(self._classes) if self._refusal_reason(it, quotas) is None)
        return (
            f"{_choose_hint(allowed)}set spec.priorityClassName of all pods to {name}, which the "
            f"API server checks. {fact}"
        )

    def refusal_fact(self, name: str, quotas: PriorityQuotas = _NO_QUOTAS) -> str | None:
        """Without the remedy."""
        reason = self._refusal_reason(name, quotas)
        return reason and f"A label or PodGroup may not choose PriorityClass {name}: {reason}"

    def _refusal_reason(self, name: str, quotas: PriorityQuotas) -> str | None:
        value = self.value(name)
        gains_nothing = value <= self.default or name == DEFAULT_PRIORITY_CLASS
        if gains_nothing:
            return None
        if value >= _SYSTEM_PRIORITY:
            return f"its value {value} is not below {_SYSTEM_PRIORITY}"
        if self._offered and name not in self._offered:
            return "the setting priority_classes of the scheduler does not list it"
        for quota, scopes in quotas.items():
            if scopes and all(_counts_class(it, name) for it in scopes):
                return f"ResourceQuota {quota} limits the pods of this class"
        return None


def _counts_class(scope: ScopeRequirement, name: str) -> bool:
    accepted = accepted_values(scope.operator, scope.values)
    return accepted is not None and accepted.accepts(name)


def _choose_hint(names: Iterator[str]) -> str:
    shown = [*islice(names, _MOST_LISTED + 1)]
    if not shown:
        return "choose none, or "
    if len(shown) > _MOST_LISTED:
        return f"choose {first_listed(shown, _MOST_LISTED)}, or "
    listed = ", ".join(shown[:-1])
    return f"choose {listed} or {shown[-1]}, or " if listed else f"choose {shown[0]}, or "
