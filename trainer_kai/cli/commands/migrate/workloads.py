"""TrainJobs and runtimes of another queueing system: what replaces its labels and fields. Pure.

An object of a file becomes a manifest. An object of the live cluster is changed by a command,
because a manifest of it could undo what a controller wrote since.
"""

import copy
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from trainer_kai.api.meta import Meta
from trainer_kai.api.names import (
    APPS,
    JOBSET_CONTROLLER,
    KUBEFLOW,
    LAST_APPLIED,
    LEADER_WORKER_SET,
    PREEMPTIBILITY,
    PRIORITY_CLASS_NAME,
    QUEUE,
    RAY,
    SCHEDULER_NAME,
    TRAINJOB_CONTROLLER,
)
from trainer_kai.api.resources import CLUSTER_RUNTIMES, JOBS, JOBSETS, PODS, RUNTIMES, TRAINJOBS
from trainer_kai.cli.commands.migrate.migration import (
    FieldRule,
    Migration,
    MigrationNote,
    ReadObject,
    field_notes,
    values_at,
)
from trainer_kai.policy.queueing.priority_classes import PREEMPTIBLE_BELOW

CLUSTER: Final = "cluster"  # the file of a document that was read from the live cluster
_SERVER_FIELDS: Final = (
    *("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences", "finalizers"),
)
_TEMPLATES: Final = (  # of runtimes, JobSets, and kinds with one pod template
    "spec.template",
    "spec.template.spec.replicatedJobs[].template.spec.template",
    "spec.replicatedJobs[].template.spec.template",
)


class LabelledObject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Any object with metadata; its spec is read by path."""

    metadata: Meta


# Kinds that may have the labels of another system: TrainJobs and runtimes are rewritten.
WORKLOAD_STRUCTS: Final[Mapping[tuple[str, str], type[Any]]] = {
    **{
        (it.group, it.kind): LabelledObject
        for it in (CLUSTER_RUNTIMES, RUNTIMES, TRAINJOBS, JOBSETS, JOBS, PODS)
    },
    (APPS, "Deployment"): LabelledObject,
    (APPS, "StatefulSet"): LabelledObject,
    (KUBEFLOW, "Notebook"): LabelledObject,
    (RAY, "RayJob"): LabelledObject,
    (RAY, "RayCluster"): LabelledObject,
    (LEADER_WORKER_SET, "LeaderWorkerSet"): LabelledObject,
}
WORKLOAD_KINDS: Final = tuple(kind for _, kind in WORKLOAD_STRUCTS)
_FINISHED: Final = ("Complete", "Completed", "Failed")  # conditions of TrainJobs, Jobs, JobSets
_PAUSED: Final = (
    FieldRule(
        "spec.managedBy",
        "another controller runs the workload: the controllers of this cluster ignore it. The "
        "field cannot be changed: create the workload again without it",
        (TRAINJOB_CONTROLLER, JOBSET_CONTROLLER),
    ),
    FieldRule(
        "spec.suspend",
        "the workload is suspended, and trainer-kai does not resume it: set false when it is to "
        "start",
    ),
)


class NewLabels(NamedTuple):
    """The labels of a TrainJob after the move, and the keys that are removed."""

    labels: Mapping[str, str]
    removed: tuple[str, ...]

    @property
    def text(self) -> str:
        added = ", ".join(f"{key}: {value}" for key, value in self.labels.items())
        return f"label {added}; without {', '.join(self.removed)}" if self.removed else added


def new_labels(
    queue: str, removed: tuple[str, ...], priority: str = "", value: int = 0
) -> NewLabels:
    """Return labels for a queue and a PriorityClass; a class of 100 or more stays preemptible."""
    labels = {QUEUE: queue}
    if priority:
        labels[PRIORITY_CLASS_NAME] = priority
    if priority and value >= PREEMPTIBLE_BELOW:
        labels[PREEMPTIBILITY] = "preemptible"
    return NewLabels(labels, removed)


def is_finished(it: ReadObject[LabelledObject]) -> bool:
    """Say whether a TrainJob, Job or JobSet has ended: a move changes nothing for it."""
    fields = it.document.fields
    if any(state for _, state in values_at(fields, "status.terminalState")):
        return True
    return any(
        isinstance(it, Mapping) and it.get("type") in _FINISHED and it.get("status") == "True"
        for _, it in values_at(fields, "status.conditions[]")
    )


def relabel_trainjob(migration: Migration, it: ReadObject[LabelledObject], new: NewLabels) -> None:
    """Add a TrainJob with other labels: as a manifest, or in the cluster as a command."""
    migration.by_hand += field_notes(it, _PAUSED)
    if it.document.file == CLUSTER:
        meta = it.value.metadata
        words = ["kubectl", "-n", meta.namespace, "label", "trainjob", meta.name]
        words += [f"{key}={value}" for key, value in new.labels.items()]
        words += [f"{key}-" for key in new.removed if key in meta.labels]
        message = (
            "let it finish; or suspend it (spec.suspend: true), run "
            f"`{shlex.join(words)}`, and resume it"
        )
        migration.change_by_hand(it.name, "metadata.labels", message)
        return
    manifest = without_status(it.document.fields)
    meta = manifest["metadata"]
    for name in ("labels", "annotations"):
        kept = {key: text for key, text in (meta.get(name) or {}).items() if key not in new.removed}
        if name == "labels":
            kept |= new.labels
        meta.pop(name, None)
        if kept:
            meta[name] = kept
    migration.add(it.name, manifest, new.text)


def without_status(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without its status, and without what the API server writes."""
    manifest = copy.deepcopy({key: value for key, value in fields.items() if key != "status"})
    meta = manifest["metadata"]
    for name in _SERVER_FIELDS:
        meta.pop(name, None)
    annotations = meta.get("annotations")
    if isinstance(annotations, dict):
        annotations.pop(LAST_APPLIED, None)
        if not annotations:
            del meta["annotations"]
    return manifest


def relabelled_other(migration: Migration, it: ReadObject[LabelledObject], new: NewLabels) -> None:
    """Add a note for a workload of another kind, unless a controller made it."""
    if it.value.metadata.controller:
        return
    migration.by_hand += field_notes(it, _PAUSED)
    message = (
        f"set the {new.text}, on the pod template too, and schedulerName: {SCHEDULER_NAME}. Only "
        "TrainJobs are gangs: each pod of another kind is scheduled alone"
    )
    migration.change_by_hand(it.name, "metadata.labels", message)


def labelled_templates(it: ReadObject[LabelledObject], key: str) -> Iterator[MigrationNote]:
    if it.value.metadata.controller:
        return
    for start in _TEMPLATES:
        for name in ("labels", "annotations"):
            for path, found in values_at(it.document.fields, f"{start}.metadata.{name}"):
                if isinstance(found, Mapping) and key in found:
                    message = f"replace it by the label {QUEUE} with the name of the Queue"
                    yield MigrationNote(it.name, f"{path}[{key}]", message)
