"""A workload as the podgrouper sees it, whatever its kind: the form that each adapter fills.

A workload is started, suspended and evicted as a whole, and its PodGroups belong to it. Its jobs
are described as those of a JobSet, since that is the most general form: other kinds are a JobSet
with fewer jobs and no order between them.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec

from trainer_kai.api.jobset import JobSetSpec, ReplicatedJobStatus
from trainer_kai.api.meta import Meta, OwnerReference, PartialObject
from trainer_kai.api.names import ADMITTED, ADMITTED_MARK
from trainer_kai.api.resources import Resource

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


class WorkloadKind(NamedTuple):
    """What holds for all workloads of a kind.

    A workload with an owner counts only while that exists with the uid that it names: of owners
    only metadata are watched.
    """

    resource: Resource[Any]
    adapt: Callable[[Any], "Workload"]  # from the object that is watched
    owner: Resource[PartialObject] | None  # None: users create the workload themselves
    called: str  # in messages: the kind that users create, suspend and resume
    job_label: str  # the Jobs that a workload controls have it
    name_label: str  # the name of the workload, on its pods and its PodGroups
    pod_place: Callable[[Mapping[str, str]], PodPlace]


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
    jobs_status: tuple[ReplicatedJobStatus, ...] = ()
    owner: OwnerReference | None = None  # only one that may own a workload of this kind
    regarding: OwnerReference  # the object that its users look at: Events are about it
    is_suspended: bool
    is_over: bool  # or is being deleted
    is_managed_here: bool  # and not by another controller, or in another cluster

    @property
    def is_admitted_here(self) -> bool:
        return self.is_managed_here and self.metadata.annotations.get(ADMITTED) == ADMITTED_MARK

    @property
    def owner_key(self) -> ObjectKey | None:
        if self.owner is None:
            return None
        return ObjectKey(self.owner.kind, self.metadata.namespace, self.owner.name)
