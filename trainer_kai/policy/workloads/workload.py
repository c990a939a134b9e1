"""A workload, whatever its kind: the form that each adapter fills.

A workload is started, suspended and evicted as a whole, and its PodGroups belong to it. Its jobs
are described as those of a JobSet, since that is the most general form: other kinds are a JobSet
with fewer jobs and no order between them. What suspends and resumes a workload is the object that
its users create: its owner, or the workload itself.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from trainer_kai.api.jobset import JobSetSpec, ReplicatedJob, ReplicatedJobStatus
from trainer_kai.api.meta import Condition, Key, Meta, OwnerReference, without_version
from trainer_kai.api.names import ADMITTED, ADMITTED_MARK, QUEUE
from trainer_kai.api.resources import Resource
from trainer_kai.policy.finding import Finding

_FIRST_TEMPLATE: Final = "spec.replicatedJobs[0].template."
_OF_JOB: Final = re.compile(
    r"spec\.replicatedJobs\[(\d+)\]\.template\.(?:spec\.(?=parallelism$)|spec\.template\.)?"
)

RestartAttempt: TypeAlias = tuple[int, int]  # of the workload, of the Job


class ObjectKey(NamedTuple):
    """A key among objects of several kinds, which may have equal names."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class PodPlace(NamedTuple):
    """Which pod of its workload a pod is, by its labels; they prove nothing."""

    replicated_job: str
    job_index: str
    attempt: RestartAttempt
    group: str = ""  # of a workload with equal groups: the suffix of its PodGroup
    completion_index: str = ""  # within its Job, if that is Indexed


class SubGroupShape(NamedTuple):
    """A sub-group of a PodGroup that its kind names itself, and the pods in it.

    The pods of a job are divided by their index, where it has several sub-groups.
    """

    name: str
    minimum: int  # of its pods, or of the sub-groups below
    job: str = ""  # "": it has sub-groups below
    first: int = 0  # the index of its first pod; the last one is before that of the next sub-group
    pods: int = 0
    parent: str = ""
    topology: Mapping[str, str] = {}  # annotations
    is_later: bool = False  # its pods are created only after other pods of the PodGroup are ready


class PodGroupShape(NamedTuple):
    """A PodGroup of a kind that does not divide its jobs by their order.

    Without sub-groups any pods count for the minimum.
    """

    suffix: str
    jobs: tuple[str, ...]
    min_pods: int
    subgroups: tuple[SubGroupShape, ...] = ()


class RolePaths(NamedTuple):
    """Where the manifest of a kind without jobs has the fields of a role."""

    template: str
    pods: str  # their number


class JobsForm(NamedTuple):
    """Where the manifests of a kind have their jobs, and what they are by default."""

    kind: str
    jobs_path: str  # "": the workload is its only job, and its PodGroup has no sub-groups

    def template_path(self, index: int) -> str:
        """Return the path of a job's template, to be followed by one of its fields."""
        return f"{self.jobs_path}[{index}].template." if self.jobs_path else ""

    def own_path(self, path: str) -> str:
        """Return the path of a field; *path* is the one that a JobSet with this job has."""
        return path if self.jobs_path else path.removeprefix(_FIRST_TEMPLATE)


FieldPath: TypeAlias = tuple[str, ...]

_SUSPEND: Final[FieldPath] = ("spec", "suspend")


class Suspendable(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The object that suspends and resumes a workload as a whole, by one of its fields."""

    key: ObjectKey
    resource: Resource[Any]
    metadata: Meta
    suspend_path: FieldPath = _SUSPEND
    needs_false: bool = False  # its controller resumes it only if the field is false, not if absent
    is_suspended: bool
    is_managed_here: bool  # and not by another controller, or in another cluster
    deadline_s: int = 0  # after so long its controller ends it, also while its pods wait; 0: never
    deadline_from: str = ""  # RFC 3339; "" while that time does not run


class OwnerKind(NamedTuple):
    """The kind of the objects from which a controller makes workloads with the same name."""

    resource: Resource[Any]
    adapt: Callable[[Any], Suspendable]
    controller: str  # for messages


class WorkloadKind(NamedTuple):
    """What holds for all workloads of a kind.

    A workload with an owner counts only while that exists with the uid that it names.
    """

    resource: Resource[Any]
    selection: str  # the label selector of the objects that are watched
    adapt: Callable[[Any], "Workload | None"]  # None: it is a part of another workload
    owner: OwnerKind | None  # None: users create all workloads of this kind themselves
    job_label: str  # the Jobs that a workload controls have it; "": it is the Job of its pods
    name_label: str  # the name of the workload, on its pods and its PodGroups
    uid_label: str  # its uid, on its pods
    pod_place: Callable[[Mapping[str, str]], PodPlace]
    form: JobsForm
    # The labels that controllers will add to a pod, by the name of its job and the index of its
    # Job; the workload may not be known yet.
    expected_labels: Callable[["Workload | None", str, str], Mapping[str, str]]
    # The workload that a Job is, or is a part of, by the name of the Job.
    workload_of_job: Callable[[Key, "Workloads"], "tuple[Workload, ReplicatedJob] | None"]
    suspend_path: FieldPath = _SUSPEND
    needs_false: bool = False  # as `Suspendable.needs_false`
    has_mark: bool = True  # admission marks it; otherwise the scheduler name of its pods decides
    has_jobs: bool = True  # all its pods are created by Jobs

    @property
    def controls_jobs(self) -> bool:
        """Say whether its controller creates the Jobs, and recreates one that is deleted."""
        return bool(self.job_label)

    @property
    def covers_all(self) -> bool:
        """Say whether all objects of the kind are workloads: one that is unknown may come yet."""
        return not self.selection


class StagedJobs(Protocol):
    """Jobs with their start order: a workload, or an object that admission or lint reads."""

    @property
    def metadata(self) -> Meta: ...

    @property
    def spec(self) -> JobSetSpec: ...


class Workload(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Made once for each change of the object, since every reconcile reads it."""

    kind: WorkloadKind
    key: ObjectKey
    metadata: Meta
    spec: JobSetSpec  # the jobs, their pod templates and their order; its other fields are not read
    shapes: tuple[PodGroupShape, ...] | None = None  # None: the order of the jobs decides
    role_paths: tuple[RolePaths, ...] = ()  # of each job, if the kind has roles in their stead
    faults: tuple[Finding, ...] = ()  # of the object, found by its adapter
    jobs_status: tuple[ReplicatedJobStatus, ...] = ()
    needs_owner: bool = False  # another object controls it
    owner: OwnerReference | None = None  # only one that may own a workload of this kind
    regarding: OwnerReference  # the object that its users look at: Events are about it
    is_suspended: bool
    suspension_changed_at: str = ""  # when it was suspended or resumed last, RFC 3339
    is_finished: bool
    is_managed_here: bool  # and not by another controller, or in another cluster
    is_suspendable: bool = True  # False: it is evicted by its pods
    deadline_s: int = 0  # as of a Suspendable
    deadline_from: str = ""

    @property
    def is_over(self) -> bool:
        return self.is_finished or bool(self.metadata.deletion_timestamp)

    @property
    def is_admitted_here(self) -> bool:
        is_marked = self.metadata.annotations.get(ADMITTED) == ADMITTED_MARK
        return self.is_managed_here and (is_marked or not self.kind.has_mark)

    def is_same(self, other: "Workload") -> bool:
        """Say whether two versions differ at most in what the adapter does not read."""
        mine, theirs = (replace(it, metadata=without_version(it.metadata)) for it in (self, other))
        return mine == theirs

    @property
    def called(self) -> str:
        """Return the kind that its users create, suspend and resume, for messages."""
        return self.owner.kind if self.owner is not None else self.key.kind

    def own_path(self, path: str) -> str:
        """Return the path of a field; *path* is the one that a JobSet with these jobs has."""
        match = _OF_JOB.match(path) if self.role_paths else None
        if match is None:
            return self.kind.form.own_path(path)
        role, field = self.role_paths[int(match[1])], path[match.end() :]
        return role.pods if field == "parallelism" else f"{role.template}.{field}"

    def with_namespace_queue(self, queue: str) -> "Workload":
        """Return it in the queue of its namespace, if nothing else names one.

        Admission writes that on the kinds that it marks.
        """
        labels = self.metadata.labels
        if self.kind.has_mark or not queue or labels.get(QUEUE):
            return self
        return replace(self, metadata=replace(self.metadata, labels={**labels, QUEUE: queue}))

    def as_suspendable(self) -> Suspendable:
        return Suspendable(
            key=self.key,
            resource=self.kind.resource,
            metadata=self.metadata,
            suspend_path=self.kind.suspend_path,
            needs_false=self.kind.needs_false,
            is_suspended=self.is_suspended,
            is_managed_here=self.is_managed_here and self.is_suspendable,
            deadline_s=self.deadline_s,
            deadline_from=self.deadline_from,
        )

    @property
    def suspendable_key(self) -> ObjectKey | None:
        return self.owner_key if self.needs_owner else self.key

    @property
    def owner_key(self) -> ObjectKey | None:
        if self.owner is None:
            return None
        return ObjectKey(self.owner.kind, self.metadata.namespace, self.owner.name)


Workloads: TypeAlias = Mapping[ObjectKey, Workload]


def suspension_changed_at(conditions: tuple[Condition, ...]) -> str:
    times = (it.last_transition_time for it in conditions if it.type == "Suspended")
    return next(times, None) or ""
