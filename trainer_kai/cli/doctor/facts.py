"""What was found in a cluster, as values; each of it may be unread, and then only itself.

Objects that have no struct of ours are as the API server wrote them: `at` walks into those.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from trainer_kai.api.deployment import Deployment
from trainer_kai.api.lease import Lease
from trainer_kai.api.meta import Meta
from trainer_kai.api.queue import Queue
from trainer_kai.cli.doctor.expected import Expected, Right
from trainer_kai.cli.doctor.finding import Fact, Unread
from trainer_kai.kube.errors import Refusal

__all__ = [
    "NOT_ASKED",
    "Facts",
    "Group",
    "Obj",
    "Site",
    "Trial",
    "at",
    "labels_of",
    "listed",
    "name_of",
]

Obj: TypeAlias = Mapping[str, Any]

NOT_ASKED: Final = Unread("it was not asked for")


class Site(NamedTuple):
    """What whoever asks says of the installation."""

    namespace: str
    scheduler_name: str
    server: str = ""


class Trial(NamedTuple):
    """What became of a dry run: the object as it would be, or a refusal."""

    sent: Obj
    got: Obj | None
    refusal: Refusal | None = None

    @property
    def namespace(self) -> str:
        """Return where it was tried."""
        return str(at(self.sent, "metadata", "namespace") or "")


class Group(NamedTuple):
    """A PodGroup, and the queue that it names."""

    name: str
    queue: str


class Facts(NamedTuple):
    """All of it."""

    site: Site
    manifests: Expected
    now: datetime  # by our own clock
    version: Fact[Obj] = NOT_ASKED
    definitions: Mapping[str, Fact[Obj | None]] = {}
    configurations: Fact[Sequence[Obj]] = NOT_ASKED  # of both kinds, as they are listed
    policies: Fact[Sequence[Obj]] = NOT_ASKED  # MutatingAdmissionPolicies
    validating: Fact[Sequence[Obj]] = NOT_ASKED  # ValidatingAdmissionPolicies and their bindings
    secret: Fact[Obj | None] = NOT_ASKED
    noted_runtimes: Fact[Sequence[str]] = NOT_ASKED  # that were written with the queue as a field
    namespaces: Fact[Sequence[Meta]] = NOT_ASKED
    jobset: Fact[Trial] = NOT_ASKED
    gang_pod: Fact[Trial] = NOT_ASKED
    foreign_pod: Fact[Trial] = NOT_ASKED
    trainjob: Fact[Trial] = NOT_ASKED  # one that is to be refused
    accounts: Mapping[str, Fact[bool]] = {}  # whether there is such a ServiceAccount
    lacking: Mapping[str, Fact[Sequence[Right]]] = {}  # what it may not, by account
    deployments: Fact[Sequence[Obj]] = NOT_ASKED
    leases: Fact[Sequence[Lease]] = NOT_ASKED
    rivals: Fact[Sequence[Lease]] = NOT_ASKED  # of other schedulers of our name, where they may be
    ready_rivals: Fact[Sequence[Deployment]] = NOT_ASKED  # the same, as Deployments
    renewed: frozenset[str] = frozenset()  # uids of Leases that changed while we looked
    skew_s: Fact[float] = NOT_ASKED  # how far the API server's clock is ahead of ours
    queues: Fact[Sequence[Queue]] = NOT_ASKED
    groups: Fact[Sequence[Group]] = NOT_ASKED
    classes: Fact[Sequence[str]] = NOT_ASKED
    gpu_nodes: Fact[tuple[int, int]] = NOT_ASKED  # those that have GPUs, and all
    kueues: Fact[Sequence[str]] = NOT_ASKED  # TrainJobs that name a queue of Kueue

    @property
    def server_now(self) -> datetime:
        """Return what the API server's clock says, or ours where that did not show."""
        skew_s = 0.0 if isinstance(self.skew_s, Unread) else self.skew_s
        return self.now + timedelta(seconds=skew_s)


def at(obj: Any, *steps: str) -> Any:
    """Return what lies inside an object; None where it is not."""
    for step in steps:
        if not isinstance(obj, Mapping):
            return None
        obj = obj.get(step)
    return obj


def name_of(obj: Obj) -> str:
    """Return the name of an object."""
    return str(at(obj, "metadata", "name") or "")


def labels_of(obj: Obj, kind: str = "labels") -> Mapping[str, str]:
    """Return labels or annotations."""
    found = at(obj, "metadata", kind)
    return found if isinstance(found, Mapping) else {}


def listed(names: Iterable[str], most: int = 4) -> str:
    """Return some names, and how many more there are."""
    given = list(names)
    more = len(given) - most
    shown = given if more <= 0 else given[:most]
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
