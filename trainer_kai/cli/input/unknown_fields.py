"""Unknown fields, invalid enum values and unread files: each would change a result silently.

Our structs have the fields that we read. For the structs named here the other fields of the API are
listed, so that any other name is reported. Elsewhere only names that resemble ours are reported.
What the names of the fields of an object mean is decided once for each distinct set of names:
thousands of pods have a few of them.

Kinds that are not needed are ignored, as in a dump of a cluster. A mistyped kind is an error, and
so is an input without any known kind.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, NamedTuple

from msgspec import inspect

from trainer_kai.api.text import listed_names
from trainer_kai.cli.input.documents import Document
from trainer_kai.cli.input.kinds import KINDS, UNUSED_KINDS
from trainer_kai.cli.input.pod_owners import unknown_pods_note
from trainer_kai.errors import FieldError, FieldWarning

# Structs that have all fields of the API.
_READ_WHOLE: Final = (
    "Affinity ContainerPort DependsOn JobSetTemplate JobTemplate LabelSelector MLPolicy "
    "NodeAffinity NodeSelector NodeSelectorTerm PodAffinity PodAffinityTerm PodGroupPolicy "
    "PodResourceClaim PodTemplate PreferredNodes PreferredPods QueueResource QueueResources "
    "ReplicatedJob Requirement ResourceClaimUse Resources ResourcesStatus RuntimeSpec "
    "SchedulingCondition SchedulingGate StartupPolicy SubGroup Toleration TopologyConstraint "
    "TopologyLevel TopologySpec TopologySpread TrainingRuntimeSpecPatch VolumeClaim"
)
_WITH_KIND: Final = "Job JobSet PodGroup Queue Runtime Topology TrainJob"
# The fields of the API that we do not read, by struct. Tests compare them with the schemas of our
# manifests and of a cluster.
UNREAD_FIELDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(_READ_WHOLE.split(), ""),
    **dict.fromkeys(_WITH_KIND.split(), "apiVersion kind"),
    "Condition": "observedGeneration",
    "Container": "args command env envFrom image imagePullPolicy lifecycle livenessProbe "
    "readinessProbe resizePolicy restartPolicyRules securityContext startupProbe stdin stdinOnce "
    "terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts workingDir",
    "CronJob": "apiVersion kind status",
    "CronJobSpec": "concurrencyPolicy failedJobsHistoryLimit schedule startingDeadlineSeconds "
    "successfulJobsHistoryLimit suspend timeZone",
    "Ephemeral": "volumeClaimTemplate",
    "FailurePolicy": "maxRestarts rules",
    "ReplicatedJobStatus": "active jobRestarts jobRestartsCountTowardsMax",
    "JobSetSpec": "coordinator network successPolicy ttlSecondsAfterFinished",
    "VolumeClaimPolicy": "templates",
    "JobSetStatus": "currentInPlaceRestartAttempt previousInPlaceRestartAttempt "
    "restartsCountTowardsMax",
    "JobSpec": "backoffLimitPerIndex manualSelector maxFailedIndexes "
    "podFailurePolicy podReplacementPolicy selector successPolicy ttlSecondsAfterFinished",
    "JobStatus": "active completedIndexes completionTime failedIndexes terminating "
    "uncountedTerminatedPods",
    "MPIPolicy": "mpiImplementation sshAuthMountPath",
    "PodGroupSpec": "schedulingBackoff",
    "PodGroupStatus": "conditions",
    "PodSpec": "activeDeadlineSeconds automountServiceAccountToken dnsConfig dnsPolicy "
    "enableServiceLinks ephemeralContainers hostAliases hostIPC hostPID hostUsers hostname "
    "hostnameOverride imagePullSecrets os readinessGates restartPolicy runtimeClassName "
    "schedulingGroup securityContext serviceAccount setHostnameAsFQDN "
    "shareProcessNamespace subdomain",
    "QueueSpec": "displayName",
    "QueueStatus": "conditions",
    "RuntimePatch": "time",
    "RuntimeRef": "apiGroup",
    "SchedulingReason": "details",
    "Trainer": "args command env image",
    "TemplateMeta": "finalizers namespace",
    "TrainJobSpec": "initializer",
    "TrainJobStatus": "jobsStatus trainerStatus",
    "Volume": "awsElasticBlockStore azureDisk azureFile cephfs cinder configMap csi downwardAPI "
    "emptyDir fc flexVolume flocker gcePersistentDisk gitRepo glusterfs hostPath image iscsi nfs "
    "photonPersistentDisk portworxVolume projected quobyte rbd scaleIO secret storageos "
    "vsphereVolume",
}
# Fields that only resemble one of ours, or that only conditions of nodes and pods have.
_ALSO_KNOWN: Final[Mapping[str, str]] = {
    "ElasticPolicy": "maxReplicas",
    "RayWorkerGroup": "maxReplicas",
    "VolumeClaimSpec": "volumeMode",
    "Condition": "lastHeartbeatTime lastProbeTime",
}
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_POLICIES: Final = ("Honor", "Ignore")
_ENUM_VALUES: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
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
_SIMILARITY: Final = 0.8


_KIND_SIMILARITY: Final = 0.85
_MAX_NAMED: Final = 3


class InputWarning(NamedTuple):
    """A warning about one field of an object; all items of a list have one path."""

    path: str
    message: str


class InputWarnings:
    """The warnings about many objects: one line per field and kind in a file."""

    def __init__(self) -> None:
        self._object_names: Final[dict[tuple[str, str, InputWarning], list[str]]] = {}

    def add(self, document: Document, struct: type) -> None:
        found: list[InputWarning] = []
        _check_struct(struct, document.fields, "", found)
        for it in dict.fromkeys(found):
            self._add(document, it)

    def without_warnings(
        self, document: Document, faults: Iterable[FieldError]
    ) -> Iterator[FieldError]:
        """Yield the faults of an object that are not warnings; collect the warnings."""
        for fault in faults:
            if isinstance(fault, FieldWarning):
                self._add(document, InputWarning(fault.path, fault.message))
            else:
                yield FieldError(str(document), str(fault))

    def lines(self) -> Iterator[str]:
        for (_, _, it), names in sorted(self._object_names.items()):
            yield f"{listed_names(sorted(names), 1)}: {it.path}: {it.message}"

    def _add(self, document: Document, it: InputWarning) -> None:
        objects = self._object_names.setdefault((document.file, document.kind, it), [])
        objects.append(str(document))


class _NamesCheck(NamedTuple):
    """What the names of the fields of an object say, and which values are to be checked."""

    unknown: tuple[tuple[str, str], ...]  # with the message, unless the value is null
    nested: tuple[tuple[str, Any], ...]
    enums: tuple[tuple[str, tuple[str, ...]], ...]


def _check_struct(
    struct: type, fields: Mapping[str, Any], path: str, warnings: list[InputWarning]
) -> None:
    check = _names_check(struct, tuple(fields))
    for name, message in check.unknown:
        if fields[name] is not None:
            warnings.append(InputWarning(f"{path}{name}", message))
    for name, values in check.enums:
        if fields[name] and fields[name] not in values:
            message = f"{fields[name]!r} is not valid; valid values are {', '.join(values)}"
            warnings.append(InputWarning(f"{path}{name}", message))
    for name, field_type in check.nested:
        if fields[name]:
            _check_value(field_type, fields[name], f"{path}{name}", warnings)


def _check_value(field_type: Any, value: object, path: str, warnings: list[InputWarning]) -> None:
    """Check a value; `read_object` reports values of the wrong type."""
    if isinstance(value, dict):
        if isinstance(field_type, inspect.StructType):
            _check_struct(field_type.cls, value, f"{path}.", warnings)
        elif isinstance(field_type, inspect.DictType):
            for name, it in value.items():
                _check_value(field_type.value_type, it, f"{path}.{name}", warnings)
    elif isinstance(value, list) and isinstance(field_type, inspect.VarTupleType):
        for it in value:
            _check_value(field_type.item_type, it, f"{path}[]", warnings)


@cache
def _names_check(struct: type, names: tuple[str, ...]) -> _NamesCheck:
    owner, read = struct.__name__, _field_types(struct)
    more = f"{UNREAD_FIELDS.get(owner, '')} {_ALSO_KNOWN.get(owner, '')}".split()
    unknown: list[tuple[str, str]] = []
    for name in names:
        if name not in read and name not in more:
            similar = _similar_field(name, read)
            if similar or owner in UNREAD_FIELDS:
                suggestion = f"; did you mean {similar}?" if similar else ""
                unknown.append((name, f"is not a known field and is ignored{suggestion}"))
    found = ((name, read[name]) for name in names if name in read)
    enums = ((name, _ENUM_VALUES.get((owner, name), ())) for name in names)
    return _NamesCheck(
        tuple(unknown),
        tuple((name, field_type) for name, field_type in found if _holds_structs(field_type)),
        tuple((name, values) for name, values in enums if values),
    )


def _similar_field(name: str, read: Iterable[str]) -> str:
    by_lower = {it.lower(): it for it in sorted(read)}
    matches = get_close_matches(name.lower(), by_lower, 1, _SIMILARITY)
    return by_lower[matches[0]] if matches else ""


@cache
def _field_types(struct: type) -> Mapping[str, Any]:
    """Return the fields that we read, with their types."""
    struct_type = inspect.type_info(struct)
    assert isinstance(struct_type, inspect.StructType)
    return {field.encode_name: _non_null(field.type) for field in struct_type.fields}


def _non_null(field_type: Any) -> Any:
    if isinstance(field_type, inspect.UnionType):
        return next((it for it in field_type.types if _holds_structs(it)), field_type)
    return field_type


def _holds_structs(field_type: Any) -> bool:
    if isinstance(field_type, inspect.VarTupleType):
        return _holds_structs(field_type.item_type)
    if isinstance(field_type, inspect.DictType):
        return _holds_structs(field_type.value_type)
    return isinstance(field_type, inspect.StructType)


def unread_files(
    documents: Iterable[Document], read: Collection[tuple[str, str]]
) -> Iterator[FieldError]:
    """Yield a fault for each file without a known kind; *read* are the kinds to list."""
    kinds: dict[str, Counter[str]] = {}
    known: set[str] = set()
    mistyped: set[str] = set()
    for document in documents:
        kind = (document.group, document.kind)
        if kind in KINDS or kind in UNUSED_KINDS:
            known.add(document.file)
            continue
        similar = similar_kind(document)
        note = similar or unknown_pods_note(*kind)
        kinds.setdefault(document.file, Counter())[f"{kind_text(document)}{note}"] += 1
        if similar or not document.kind or not document.fields.get("apiVersion"):
            mistyped.add(document.file)
    expected = f"known kinds are {', '.join(sorted({kind for _, kind in read}))}"
    for file, counts in kinds.items():
        if file not in known and (not known or file in mistyped):
            named = [f"{name} ({count})" for name, count in sorted(counts.items())]
            found = listed_names(named, _MAX_NAMED)
            yield FieldError(file, f"has no known kind: {found}; {expected}")


def kind_text(document: Document) -> str:
    """Return version and kind of an object as in its file."""
    version = document.fields.get("apiVersion")
    if not document.kind:
        return "an object without a kind"
    return f"{version} {document.kind}" if version else f"{document.kind} without an apiVersion"


def similar_kind(document: Document) -> str:
    """Return a hint with the known kind that a mistyped kind or version resembles; "" for none."""
    return _similar_kind(str(document.fields.get("apiVersion", "")), document.kind)


@cache
def _similar_kind(version: str, kind: str) -> str:
    expected = [(it.resource.api_version, it.resource.kind) for it in KINDS.values()]
    kinds = {known.lower(): known for api_version, known in expected if api_version == version}
    versions = [api_version for api_version, known in expected if known == kind]
    for it in get_close_matches(kind.lower(), kinds, 1, _KIND_SIMILARITY):
        return f"; did you mean {version} {kinds[it]}?"
    for it in get_close_matches(version, versions, 1, _KIND_SIMILARITY):
        return f"; did you mean {it} {kind}?"
    return ""
