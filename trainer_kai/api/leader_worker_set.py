"""LeaderWorkerSet: equal groups of pods, each of a leader and its workers."""

import msgspec

from trainer_kai.api.meta import Meta
from trainer_kai.api.pod import PodTemplate


class SubGroupPolicy(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    sub_group_size: int | None = None
    sub_group_policy_type: str = "LeaderWorker"


class LeaderWorkerTemplate(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """*size* is that of a group, with its leader, which has the workers' template by default."""

    leader_template: PodTemplate | None = None
    worker_template: PodTemplate = PodTemplate()
    size: int = 1
    sub_group_policy: SubGroupPolicy | None = None


class LeaderWorkerSetSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    replicas: int = 1
    startup_policy: str = "LeaderCreated"
    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()


class LeaderWorkerSetStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The groups that exist; an update may create more than the spec asks for."""

    replicas: int = 0


class LeaderWorkerSet(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    metadata: Meta
    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()
    status: LeaderWorkerSetStatus = LeaderWorkerSetStatus()
