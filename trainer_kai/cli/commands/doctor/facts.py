"""The facts that were read from a cluster, as values; each can be unread on its own.

Objects without a struct of ours are as the API server wrote them: `nested_field` reads those.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from trainer_kai.api.deployment import Deployment
from trainer_kai.api.lease import Lease
from trainer_kai.api.listed_names import listed_names
from trainer_kai.api.meta import Meta
from trainer_kai.api.queue import Queue
from trainer_kai.cli.commands.doctor.finding import Fact, Unread
from trainer_kai.cli.commands.doctor.manifests.expected import ExpectedManifests, Permission
from trainer_kai.kube.rest.errors import ErrorDetails

Obj: TypeAlias = Mapping[str, Any]

NOT_ASKED: Final = Unread("it was not read")


class Installation(NamedTuple):
    """The options that describe the installation."""

    namespace: str
    scheduler_name: str
    server: str = ""


class DryRun(NamedTuple):
    """The result of a dry run: the object as it would be stored, or a refusal."""

    sent: Obj
    got: Obj | None
    refusal: ErrorDetails | None = None

    @property
    def namespace(self) -> str:
        """Return the namespace of the object."""
        return str(nested_field(self.sent, "metadata", "namespace") or "")


class PodGroupQueue(NamedTuple):
    """A PodGroup, and its queue."""

    name: str
    queue: str


class NodeFacts(NamedTuple):
    """What nodes have: their number, their GPUs, and the labels that say what runs on them."""

    with_gpus: int
    number: int
    of_vendors: tuple[str, ...] = ()  # the resources of nodes that the makers of GPUs name
    unlabelled_gpus: int = 0  # nodes with GPUs and without the label of GPU workers
    cpu_workers: int = 0


class InstallationFacts(NamedTuple):
    """All facts of an installation."""

    installation: Installation
    manifests: ExpectedManifests
    now: datetime  # by the clock of this machine
    version: Fact[Obj] = NOT_ASKED
    definitions: Mapping[str, Fact[Obj | None]] = {}
    configurations: Fact[Sequence[Obj]] = NOT_ASKED  # of both kinds
    policies: Fact[Sequence[Obj]] = NOT_ASKED  # MutatingAdmissionPolicies
    validating_policies: Fact[Sequence[Obj]] = NOT_ASKED  # with their bindings
    secret: Fact[Obj | None] = NOT_ASKED
    runtimes_with_queue_field: Fact[Sequence[str]] = NOT_ASKED  # by their managedFields
    namespaces: Fact[Sequence[Meta]] = NOT_ASKED
    jobset: Fact[DryRun] = NOT_ASKED
    gang_pod: Fact[DryRun] = NOT_ASKED
    foreign_pod: Fact[DryRun] = NOT_ASKED
    trainjob: Fact[DryRun] = NOT_ASKED  # an invalid one
    accounts: Mapping[str, Fact[bool]] = {}  # whether the ServiceAccount exists
    denied_permissions: Mapping[str, Fact[Sequence[Permission]]] = {}  # what an account lacks
    deployments: Fact[Sequence[Obj]] = NOT_ASKED
    leases: Fact[Sequence[Lease]] = NOT_ASKED
    other_scheduler_leases: Fact[Sequence[Lease]] = NOT_ASKED  # of schedulers with our name
    other_scheduler_deployments: Fact[Sequence[Deployment]] = NOT_ASKED
    renewed: frozenset[str] = frozenset()  # uids of Leases that were renewed between two reads
    skew_s: Fact[float] = NOT_ASKED  # how far the API server's clock is ahead of this machine's
    queues: Fact[Sequence[Queue]] = NOT_ASKED
    podgroup_queues: Fact[Sequence[PodGroupQueue]] = NOT_ASKED
    priority_classes: Fact[Sequence[str]] = NOT_ASKED
    nodes: Fact[NodeFacts] = NOT_ASKED
    kueue_trainjobs: Fact[Sequence[str]] = NOT_ASKED  # TrainJobs that name a queue of Kueue
    runtime_classes: Fact[Sequence[str]] = NOT_ASKED
    reservation_pods: Fact[Sequence[Obj]] = NOT_ASKED  # the pods of their namespace
    scheduler_leases: Fact[Sequence[Lease]] = NOT_ASKED  # of our scheduler, in all namespaces

    @property
    def server_now(self) -> datetime:
        """Return the time by the API server's clock, or by ours if that is not known."""
        skew_s = 0.0 if isinstance(self.skew_s, Unread) else self.skew_s
        return self.now + timedelta(seconds=skew_s)


def nested_field(obj: Any, *steps: str) -> Any:
    """Return a field inside an object; None if it is missing."""
    for step in steps:
        if not isinstance(obj, Mapping):
            return None
        obj = obj.get(step)
    return obj


def name_of(obj: Obj) -> str:
    """Return the name of an object."""
    return str(nested_field(obj, "metadata", "name") or "")


def labels_of(obj: Obj, kind: str = "labels") -> Mapping[str, str]:
    """Return labels or annotations."""
    labels = nested_field(obj, "metadata", kind)
    return labels if isinstance(labels, Mapping) else {}


def listed(names: Iterable[str], limit: int = 4) -> str:
    """Return some names, and the number of the others."""
    return listed_names([*names], limit)
