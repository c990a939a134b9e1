"""Fields that nobody knows and words that say nothing: both change an answer in silence.

Our structs hold the fields that we read. For those named here it is known what else the API has, so
that whatever is neither is told; elsewhere only what resembles a field that we read.
"""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, NamedTuple

from msgspec import inspect

from trainer_kai.cli.documents import Document
from trainer_kai.errors import FieldError, Unmet

__all__ = ["BESIDE", "Remarks", "Strange", "strange"]

# By struct: the fields of the API that we do not read. Tests compare them with the schemas that our
# manifests and a cluster have.
BESIDE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("JobSet", "PodGroup", "Queue", "Runtime", "Topology"), "apiVersion kind"),
    **dict.fromkeys(("Affinity", "NodeAffinity", "PodAffinity", "PodAffinityTerm"), ""),
    **dict.fromkeys(("PreferredNodes", "PreferredPods", "Toleration", "TopologySpread"), ""),
    **dict.fromkeys(("LabelSelector", "NodeSelector", "NodeSelectorTerm", "Requirement"), ""),
    **dict.fromkeys(("ContainerPort", "ResourceClaimUse", "Resources", "SchedulingGate"), ""),
    **dict.fromkeys(("PodResourceClaim", "PodTemplate", "VolumeClaim", "JobTemplate"), ""),
    **dict.fromkeys(("DependsOn", "ReplicatedJob", "StartupPolicy", "JobSetTemplate"), ""),
    **dict.fromkeys(("MLPolicy", "PodGroupPolicy", "RuntimeSpec"), ""),
    **dict.fromkeys(("SubGroup", "TopologyConstraint", "ResourcesStatus"), ""),
    **dict.fromkeys(("QueueResource", "QueueResources"), ""),
    **dict.fromkeys(("SchedulingCondition", "TopologyLevel", "TopologySpec"), ""),
    "Condition": "observedGeneration",
    "Container": "args command env envFrom image imagePullPolicy lifecycle livenessProbe "
    "readinessProbe resizePolicy restartPolicyRules securityContext startupProbe stdin stdinOnce "
    "terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts workingDir",
    "Ephemeral": "volumeClaimTemplate",
    "FailurePolicy": "maxRestarts rules",
    "JobCounts": "active jobRestarts jobRestartsCountTowardsMax",
    "JobSetSpec": "coordinator network successPolicy ttlSecondsAfterFinished",
    "ClaimPolicy": "templates",
    "JobSetStatus": "currentInPlaceRestartAttempt previousInPlaceRestartAttempt "
    "restartsCountTowardsMax",
    "JobSpec": "activeDeadlineSeconds backoffLimitPerIndex manualSelector maxFailedIndexes "
    "podFailurePolicy podReplacementPolicy selector successPolicy ttlSecondsAfterFinished",
    "MPIPolicy": "mpiImplementation sshAuthMountPath",
    "PodGroupSpec": "schedulingBackoff",
    "PodGroupStatus": "conditions",
    "PodSpec": "activeDeadlineSeconds automountServiceAccountToken dnsConfig dnsPolicy "
    "enableServiceLinks ephemeralContainers hostAliases hostIPC hostPID hostUsers hostname "
    "hostnameOverride imagePullSecrets os readinessGates restartPolicy runtimeClassName "
    "schedulingGroup securityContext serviceAccount serviceAccountName setHostnameAsFQDN "
    "shareProcessNamespace subdomain terminationGracePeriodSeconds",
    "QueueSpec": "displayName",
    "QueueStatus": "conditions",
    "RuntimePatch": "time",
    "RuntimeRef": "apiGroup",
    "SchedulingReason": "details",
    "Trainer": "args command env image",
    "TrainingRuntimeSpecPatch": "",
    "TemplateMeta": "finalizers namespace",
    "TrainJob": "apiVersion kind",
    "TrainJobSpec": "activeDeadlineSeconds initializer",
    "TrainJobStatus": "jobsStatus trainerStatus",
    "Volume": "awsElasticBlockStore azureDisk azureFile cephfs cinder configMap csi downwardAPI "
    "emptyDir fc flexVolume flocker gcePersistentDisk gitRepo glusterfs hostPath image iscsi nfs "
    "photonPersistentDisk portworxVolume projected quobyte rbd scaleIO secret storageos "
    "vsphereVolume",
}
# Further fields that only resemble one of ours.
_RESEMBLING: Final[Mapping[str, str]] = {"VolumeClaimSpec": "volumeMode"}
# What nodes and pods have in their conditions, and others not.
_ELSEWHERE: Final[Mapping[str, str]] = {"Condition": "lastHeartbeatTime lastProbeTime"}
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_POLICIES: Final = ("Honor", "Ignore")
_WORDS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("Taint", "effect"): _EFFECTS,
    ("Toleration", "effect"): _EFFECTS,
    ("Toleration", "operator"): ("Equal", "Exists", "Lt", "Gt"),
    ("Requirement", "operator"): ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    ("TopologySpread", "whenUnsatisfiable"): ("DoNotSchedule", "ScheduleAnyway"),
    ("TopologySpread", "nodeAffinityPolicy"): _POLICIES,
    ("TopologySpread", "nodeTaintsPolicy"): _POLICIES,
    ("StartupPolicy", "startupPolicyOrder"): ("AnyOrder", "InOrder"),
    ("DependsOn", "status"): ("Ready", "Complete"),
    ("StorageClass", "volumeBindingMode"): ("Immediate", "WaitForFirstConsumer"),
}
_ALIKE: Final = 0.8


class Strange(NamedTuple):
    """What is strange about one field."""

    path: str
    message: str


class Remarks:
    """What is strange about many objects: a line for each field of a kind in a file."""

    def __init__(self) -> None:
        self._found: Final[dict[tuple[str, str, Strange], list[str]]] = {}

    def add(self, document: Document, struct: type) -> None:
        """Look at an object."""
        for it in dict.fromkeys(strange(struct, document.fields)):
            self._found.setdefault((document.file, document.kind, it), []).append(str(document))

    def sift(self, document: Document, faults: Iterable[FieldError]) -> Iterator[FieldError]:
        """Yield what is wrong with an object; take note of what harms nobody else."""
        for fault in faults:
            if isinstance(fault, Unmet):
                it = Strange(fault.path, fault.message)
                self._found.setdefault((document.file, document.kind, it), []).append(str(document))
            else:
                yield FieldError(str(document), str(fault))

    def lines(self) -> Iterator[str]:
        """Yield them in an order that is not that of the objects."""
        for (_, _, it), names in sorted(self._found.items()):
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield f"{min(names)}{more}: {it.path}: {it.message}"


class _Shape(NamedTuple):
    """What is known of a struct."""

    read: frozenset[str]
    known: frozenset[str]
    is_whole: bool  # nothing is missing from *known*
    below: tuple[tuple[str, Any], ...]  # fields with structs somewhere in them
    words: tuple[tuple[str, tuple[str, ...]], ...]


def strange(struct: type, fields: Mapping[str, Any]) -> list[Strange]:
    """Return what is strange about an object; places in a list are told as one."""
    found: list[Strange] = []
    _look(_shape(struct), fields, "", found)
    return found


def _look(shape: _Shape, fields: Mapping[str, Any], path: str, found: list[Strange]) -> None:
    if not shape.known.issuperset(fields):
        for name in fields.keys() - shape.known:
            near = _near(name, shape.read)
            if fields[name] is not None and (shape.is_whole or near):
                right = f"; there is {near}" if near else ""
                found.append(Strange(f"{path}{name}", f"is not known and left out{right}"))
    for name, words in shape.words:
        if fields.get(name) and fields[name] not in words:
            message = f"{fields[name]!r} is none of {', '.join(words)}"
            found.append(Strange(f"{path}{name}", message))
    for name, kind in shape.below:
        value = fields.get(name)
        if value:
            _below(kind, value, f"{path}{name}", found)


def _below(kind: Any, value: object, path: str, found: list[Strange]) -> None:
    """Look at a value; of what has the wrong type somebody else speaks."""
    if isinstance(value, dict):
        if isinstance(kind, inspect.StructType):
            _look(_shape(kind.cls), value, f"{path}.", found)
        elif isinstance(kind, inspect.DictType):
            for name, it in value.items():
                _below(kind.value_type, it, f"{path}.{name}", found)
    elif isinstance(value, list) and isinstance(kind, inspect.VarTupleType):
        for it in value:
            _below(kind.item_type, it, f"{path}[]", found)


def _near(name: str, read: frozenset[str]) -> str:
    by_lower = {it.lower(): it for it in sorted(read)}
    found = get_close_matches(name.lower(), by_lower, 1, _ALIKE)
    return by_lower[found[0]] if found else ""


@cache
def _shape(struct: type) -> _Shape:
    whole = inspect.type_info(struct)
    assert isinstance(whole, inspect.StructType)
    name = struct.__name__
    read = frozenset(field.encode_name for field in whole.fields)
    beside = " ".join(it.get(name, "") for it in (BESIDE, _RESEMBLING, _ELSEWHERE)).split()
    below = ((field.encode_name, _bare(field.type)) for field in whole.fields)
    return _Shape(
        read=read,
        known=read | frozenset(beside),
        is_whole=name in BESIDE,
        below=tuple((name, kind) for name, kind in below if _holds_structs(kind)),
        words=tuple((field, words) for (of, field), words in _WORDS.items() if of == name),
    )


def _bare(kind: Any) -> Any:
    """Return what a field has if it is not null."""
    if isinstance(kind, inspect.UnionType):
        return next((it for it in kind.types if _holds_structs(it)), kind)
    return kind


def _holds_structs(kind: Any) -> bool:
    if isinstance(kind, inspect.VarTupleType):
        return _holds_structs(kind.item_type)
    if isinstance(kind, inspect.DictType):
        return _holds_structs(kind.value_type)
    return isinstance(kind, inspect.StructType)
