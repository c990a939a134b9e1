"""From KAI: its Queues and PodGroups stay; what its other objects mean to trainer-kai. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import (
    ADMITTED,
    ADMITTED_MARK,
    KAI,
    NODE_POOL,
    POD_GROUP,
    RUN_AI,
    SCHEDULER_NAME,
    TOPOLOGY_REQUIRED,
)
from trainer_kai.api.owners import trainjob_owner
from trainer_kai.api.queue import Queue
from trainer_kai.api.resources import JOBSETS, PODGROUPS, PODS, QUEUES, TOPOLOGIES, TRAINJOBS
from trainer_kai.cli.commands.migrate.migration import (
    Migration,
    MigrationNote,
    ObjectName,
    ReadObject,
    Successor,
    read_objects,
)
from trainer_kai.cli.commands.migrate.queue_manifests import shares_text
from trainer_kai.cli.commands.migrate.systems.kai_settings import add_kai_settings
from trainer_kai.cli.commands.migrate.workloads import Workload, is_finished
from trainer_kai.cli.commands.queue.write_plan import effective_access
from trainer_kai.cli.input.documents import Document
from trainer_kai.cli.input.kinds import BindRequest
from trainer_kai.policy.queueing.queue_access import close_command

_FINISHED: Final = ("Succeeded", "Failed")


class OwnedPodGroupSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The queue of a PodGroup."""

    queue: str = ""


class OwnedPodGroup(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A PodGroup: its owner and its queue."""

    metadata: Meta
    spec: OwnedPodGroupSpec = OwnedPodGroupSpec()


class ClaimingPodSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The fields of a pod that a move needs."""

    scheduler_name: str = ""
    node_name: str = ""
    resource_claims: tuple[dict[str, Any], ...] = ()


class PodPhase(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Whether a pod is finished."""

    phase: str = ""


class ClaimingPod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod."""

    metadata: Meta
    spec: ClaimingPodSpec = ClaimingPodSpec()
    status: PodPhase = PodPhase()


_STRUCTS: Final[Mapping[tuple[str, str], type[Any]]] = {
    (RUN_AI, QUEUES.kind): Queue,
    (RUN_AI, PODGROUPS.kind): OwnedPodGroup,
    (RUN_AI, "BindRequest"): BindRequest,
    (KAI, "Config"): Workload,
    (KAI, "SchedulingShard"): Workload,
    (KAI, TOPOLOGIES.kind): Workload,
    (JOBSETS.group, JOBSETS.kind): Workload,
    ("", PODS.kind): ClaimingPod,
}
_VERSIONS: Final = {RUN_AI: ("v2", "v2alpha2", "v1alpha2"), KAI: ("v1", "v1alpha1")}
_RESUMED: Final = (
    "its JobSet is older than the webhook. Pods that run keep their PodGroup; pods that are "
    "created after a suspension or an eviction get none, and are scheduled alone and in the queue "
    "of their own label. When it is suspended, run `kubectl -n {0} delete jobset {1}` and resume "
    "it: Trainer creates the JobSet again, and the webhook admits it"
)
_OTHER_OWNER: Final = (
    "pods that run keep this PodGroup. No process makes PodGroups for new pods of a {0}: each pod "
    "is scheduled alone. To keep such gangs, keep KAI and install trainer-kai with mode external"
)


class _Like(NamedTuple):
    """Objects that get the same sentence: the first of them, and how many more."""

    first: ObjectName
    more: int

    @property
    def text(self) -> str:
        return f" (and {self.more} more)" if self.more else ""


def plan_kai(documents: Sequence[Document]) -> Migration:
    """Return what a move from KAI changes; raise for faults of the objects."""
    objects = read_objects(documents, _STRUCTS, _VERSIONS)
    migration = Migration()
    _add_queues(migration, objects[QUEUES.kind])
    for it in objects[TOPOLOGIES.kind]:
        migration.becomes.append(Successor(it.name, it.name, "stays"))
        message = "a PodGroup with a required topology waits with TopologyUnfit"
        migration.unsupported.append(MigrationNote(it.name, "spec.levels", message))
    add_kai_settings(migration, objects["Config"], objects["SchedulingShard"])
    _add_podgroups(migration, objects)
    _add_pods(migration, objects[PODS.kind])
    pending = [it.name for it in objects["BindRequest"] if _is_pending(it.value)]
    for like in _likes({"": pending}).values():
        message = f"wait until KAI's binder has bound the pod{like.text}, then scale KAI down"
        migration.by_hand.append(MigrationNote(like.first, "status.phase", message))
    return migration


def _is_pending(request: BindRequest) -> bool:
    return request.is_live and request.status.phase != "Succeeded"


def _add_queues(migration: Migration, queues: Sequence[ReadObject[Queue]]) -> None:
    """Add the queues, which stay; and what trainer-kai reads in them that KAI does not."""
    by_name = {it.value.metadata.name: it.value for it in queues}
    for it in queues:
        name = it.value.metadata.name
        text = f"stays; {shares_text(it.document.fields)}"
        migration.becomes.append(Successor(it.name, it.name, text))
        if effective_access(by_name, name).mode is None and not it.value.spec.parent_queue:
            message = (
                "no annotation trainer-kai.dev/access here: every namespace may use this queue and "
                f"those below it, as with KAI. `{close_command(name)}` closes them"
            )
            migration.by_hand.append(MigrationNote(it.name, "metadata.annotations", message))
        if fault := _tree_fault(by_name, name):
            message = f"{fault}. PodGroups of the queue wait until spec.parentQueue is corrected"
            migration.by_hand.append(MigrationNote(it.name, "spec.parentQueue", message))
        if NODE_POOL in it.value.metadata.labels:
            message = "the queue counts for all nodes: there are no node pools"
            path = f"metadata.labels[{NODE_POOL}]"
            migration.unsupported.append(MigrationNote(it.name, path, message))


def _tree_fault(queues: Mapping[str, Queue], name: str) -> str:
    """Return what is wrong with the parent of a queue; "" for nothing."""
    parent = queues[name].spec.parent_queue
    if parent and parent not in queues:
        return f"Queue {parent} does not exist in the input"
    path = [name]
    while parent and parent in queues and parent not in path:
        path.append(parent)
        parent = queues[parent].spec.parent_queue
    return f"the queue is below itself: {' → '.join((*path, name))}" if parent == name else ""


def _add_podgroups(migration: Migration, objects: Mapping[str, list[ReadObject[Any]]]) -> None:
    """Add the PodGroups by owner and queue, and the JobSets that the webhook never saw."""
    kept: dict[tuple[str, str], list[ObjectName]] = {}
    for it in objects[PODGROUPS.kind]:
        owners = it.value.metadata.owner_references
        kind = owners[0].kind if owners else ""
        kept.setdefault((kind, it.value.spec.queue), []).append(it.name)
    for (_, queue), names in sorted(kept.items()):
        text = f"stays, in queue {queue or '-'}; its pods keep running and are charged to the queue"
        migration.becomes.append(Successor(names[0], names[0], text, len(names) - 1))
    by_owner: dict[str, list[ObjectName]] = {}
    for (kind, _), names in kept.items():
        if kind not in {JOBSETS.kind, ""}:
            by_owner.setdefault(kind, []).extend(names)
    for kind, like in _likes(by_owner).items():
        message = f"{_OTHER_OWNER.format(kind)}{like.text}"
        migration.unsupported.append(MigrationNote(like.first, "metadata.ownerReferences", message))
    for it in objects[JOBSETS.kind]:
        meta = it.value.metadata
        is_admitted = meta.annotations.get(ADMITTED) == ADMITTED_MARK
        if trainjob_owner(meta) and not is_admitted and not is_finished(it):
            source = ObjectName(TRAINJOBS.kind, meta.key)
            message = _RESUMED.format(meta.namespace, meta.name)
            migration.by_hand.append(MigrationNote(source, "spec.suspend", message))


def _add_pods(migration: Migration, pods: Sequence[ReadObject[ClaimingPod]]) -> None:
    """Add what the scheduler does not support of pods, one line for each reason."""
    found: dict[tuple[str, str], list[ObjectName]] = {}
    ungrouped: Counter[str] = Counter()
    for it in pods:
        pod = it.value
        if pod.spec.scheduler_name != SCHEDULER_NAME or pod.status.phase in _FINISHED:
            continue
        ungrouped[pod.metadata.namespace] += POD_GROUP not in pod.metadata.annotations
        for reason in _unsupported_fields(pod):
            found.setdefault(reason, []).append(it.name)
    for (path, message), like in _likes(found).items():
        migration.unsupported.append(MigrationNote(like.first, path, f"{message}{like.text}"))
    for namespace, count in sorted(ungrouped.items()):
        if count:
            message = f"{count} pods name no PodGroup: each is scheduled alone"
            source = ObjectName("Namespace", Key("", namespace))
            migration.by_hand.append(MigrationNote(source, "pods", message))


def _unsupported_fields(pod: ClaimingPod) -> Iterable[tuple[str, str]]:
    annotations = pod.metadata.annotations
    waits = "a pod that runs keeps running and is counted; a new one waits"
    if pod.spec.resource_claims:
        yield "spec.resourceClaims", f"the scheduler allocates no ResourceClaims: {waits}"
    if TOPOLOGY_REQUIRED in annotations:
        path = f"metadata.annotations[{TOPOLOGY_REQUIRED}]"
        yield path, f"the scheduler does not support a required topology yet: {waits}"


def _likes(found: Mapping[Any, list[ObjectName]]) -> dict[Any, _Like]:
    return {
        reason: _Like(names[0], len(names) - 1) for reason, names in sorted(found.items()) if names
    }
