"""What a change is good for: whom it may help, or that it makes somebody wait. Pure."""

from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from scheduler.state.budgets import speaks
from scheduler.state.nodes import fault_of
from trainer_kai.api.disruption import PodDisruptionBudget
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.node import Node
from trainer_kai.api.pod import Pod
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.queue import Queue

__all__ = [
    "ANY",
    "BUDGETS",
    "FREED",
    "MORE",
    "NOTHING",
    "OTHERS",
    "OVER",
    "READY",
    "TAKEN",
    "Topics",
    "help_of",
    "is_ready",
    "looks",
    "says",
    "waits",
    "worse",
]

Topics: TypeAlias = frozenset[str]

NOTHING: Final[Topics] = frozenset()
ANY: Final[Topics] = frozenset({"*"})  # whoever waits and for whatever: look again
FREED: Final[Topics] = frozenset({"room", "pods", "queue"})
TAKEN: Final[Topics] = frozenset({"room"})  # by others, who may be whom somebody wants to be near
OTHERS: Final[Topics] = frozenset({"others"})  # pods that want nothing of us, and have nothing
READY: Final[Topics] = frozenset({"jobsets"})  # those who wait for a stage wait for these as well
MORE: Final[Topics] = frozenset({"more"})  # of a group that cannot be placed before all are there
BUDGETS: Final[Topics] = frozenset({"budgets"})  # who would take something from those they cover
OVER: Final = ("Succeeded", "Failed")


class _Looks(NamedTuple):
    """What of a pod can make a difference to a plan."""

    uid: str
    node: str
    promised: str
    is_over: str
    is_going: bool
    made_of: tuple[int, ...]  # by identity: what does not change is shared


def waits(pod: Pod | None) -> bool:
    """Say whether a pod is there to be placed."""
    if pod is None or pod.spec.node_name or pod.metadata.deletion_timestamp:
        return False
    return pod.status.phase not in OVER


def looks(pod: Pod | None) -> _Looks | None:
    """Return what of a pod a plan can tell apart."""
    if pod is None:
        return None
    meta, spec = pod.metadata, pod.spec
    phase = pod.status.phase
    return _Looks(
        uid=meta.uid,
        node=spec.node_name,
        promised=pod.status.nominated_node_name,
        is_over=phase if phase in OVER else "",
        is_going=bool(meta.deletion_timestamp),
        made_of=(id(meta.labels), id(meta.annotations), len(spec.scheduling_gates)),
    )


def is_ready(pod: Pod | None) -> bool:
    """Say whether a pod is Ready."""
    conditions = pod.status.conditions if pod else ()
    return any(one.type == "Ready" and one.status == "True" for one in conditions)


def says(group: PodGroup | None) -> object:
    """Return what of a group a plan can tell apart."""
    if group is None:
        return None
    meta = group.metadata
    return meta.uid, meta.labels, meta.annotations, meta.owner_references, group.spec


def help_of(before: Any, now: Any) -> Topics:
    """Return whom it may help that an object is another now."""
    if isinstance(before or now, PodDisruptionBudget):
        was, is_ = (speaks(it) if it else None for it in (before, now))
        return NOTHING if was == is_ else BUDGETS
    if before is None or now is None:
        return NOTHING if before is now else ANY
    if _made_of(before) != _made_of(now):
        return ANY
    is_further = isinstance(now, JobSet) and before.status != now.status
    return READY if is_further else NOTHING


def _made_of(it: Any) -> object:
    """Return what of an object can make a difference, but for the progress of JobSets."""
    meta = it.metadata
    base = meta.uid, meta.labels, meta.annotations, meta.deletion_timestamp
    if isinstance(it, Node):  # its conditions say every minute that nothing is new
        return *base, it.spec, it.status.allocatable, fault_of(it)
    if isinstance(it, Queue | JobSet):  # the status of a queue is our own word
        return *base, it.spec
    versionless = msgspec.structs.replace(meta, resource_version="", generation=0)
    return msgspec.structs.replace(it, metadata=versionless)


def worse(before: Any, now: Any) -> bool:
    """Say whether a node has less to offer than before."""
    if before is None or not isinstance(before, Node):
        return False
    if now is None or fault_of(now) > fault_of(before):
        return True
    return bool(
        before.status.allocatable != now.status.allocatable
        or before.spec != now.spec
        or before.metadata.labels != now.metadata.labels
    )
