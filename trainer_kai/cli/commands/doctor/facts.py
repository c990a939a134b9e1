"""The facts that were read from a cluster, as values, and the findings of checks about them.

Each fact can be unread on its own. Objects without a struct of ours are as the API server wrote
them: `nested_field` reads those. The facts come first, then what several checks derive from them:
which Leases are alive, and which settings the Deployments give to their processes, as far as their
fields show them.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from itertools import zip_longest
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from trainer_kai.api.cluster_kinds import Deployment, Lease
from trainer_kai.api.kai_kinds import Queue
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import SCHEDULER_NAME
from trainer_kai.api.text import listed_names
from trainer_kai.cli.commands.doctor.expected import ExpectedManifests, Permission
from trainer_kai.errors import TrainerKaiError
from trainer_kai.kube.rest.response import ErrorDetails
from trainer_kai.policy.duplicate_scheduler import (
    DEFAULT_LEASE_S,
    DuplicateSchedulerObjects,
    duplicate_scheduler_objects,
    lease_duration_s,
)
from trainer_kai.policy.podgroups.avoided_nodes import AvoidedNodeRecord

A = TypeVar("A")
B = TypeVar("B")
K = TypeVar("K")


class Unread(NamedTuple):
    """A fact that could not be read, and why."""

    reason: str


Fact: TypeAlias = A | Unread


class CannotTell(TrainerKaiError):
    """A check needs a fact that could not be read."""


def require(fact: Fact[A]) -> A:
    if isinstance(fact, Unread):
        raise CannotTell(fact.reason)
    return fact


def if_read(fact: Fact[A], otherwise: A) -> A:
    return otherwise if isinstance(fact, Unread) else fact


def both(first: Fact[A], second: Fact[B]) -> Fact[tuple[A, B]]:
    """Return two facts as one, which is unread if one of them is."""
    if isinstance(first, Unread):
        return first
    return second if isinstance(second, Unread) else (first, second)


def all_of(facts: Mapping[K, Fact[A]]) -> Fact[dict[K, A]]:
    try:
        return {name: require(it) for name, it in facts.items()}
    except CannotTell as error:
        return Unread(str(error))


class CheckState(Enum):
    """The state of a finding, in ascending severity."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    FAULT = "fault"


class CheckFinding(NamedTuple):
    """What a check observed, and the remedy if something is wrong."""

    state: CheckState
    observed: str
    remedy: str = ""
    check: str = ""  # the title of the check, from the table of checks


Findings: TypeAlias = Iterable[CheckFinding]


def ok(observed: str) -> CheckFinding:
    return CheckFinding(CheckState.OK, observed)


def warning(observed: str, remedy: str) -> CheckFinding:
    """Return a finding: something works, but may not be intended."""
    return CheckFinding(CheckState.WARNING, observed, remedy)


def fault(observed: str, remedy: str) -> CheckFinding:
    return CheckFinding(CheckState.FAULT, observed, remedy)


def unknown(observed: str) -> CheckFinding:
    return CheckFinding(CheckState.UNKNOWN, observed)


Obj: TypeAlias = Mapping[str, Any]

NOT_ASKED: Final = Unread("it was not read")
CLOCK_S: Final = 5.0  # clocks that differ by more are reported
UNKNOWN_VALUE: Final = "?"  # a setting with its value in another object
# The name of the account, the Deployment and the Lease.
SCHEDULER: Final = "trainer-kai-scheduler"
_PREFIX: Final = "TRAINER_KAI_"


class Installation(NamedTuple):
    namespace: str
    scheduler_name: str
    server: str = ""
    try_in: str = ""  # of the dry runs; else the namespace of the context, if it takes part


class DryRun(NamedTuple):
    """The result of a dry run: the object as it would be stored, or a refusal."""

    sent: Obj
    got: Obj | None
    refusal: ErrorDetails | None = None
    skew_s: float = 0.0  # how far the API server's clock is ahead, by the date of *got*

    @property
    def namespace(self) -> str:
        return str(nested_field(self.sent, "metadata", "namespace") or "")


class PodGroupQueue(NamedTuple):
    """A PodGroup with its queue, and the nodes that refused pods of it."""

    name: str
    queue: str
    avoided_nodes: Mapping[str, AvoidedNodeRecord] = {}


class NodeFacts(NamedTuple):
    """What nodes have: their number, their GPUs, and the labels that say what runs on them."""

    with_gpus: int
    number: int
    of_vendors: tuple[str, ...] = ()  # the resources of nodes that the makers of GPUs name
    unlabelled_gpus: int = 0  # nodes with GPUs and without the label of GPU workers
    cpu_workers: int = 0


class InstallationFacts(NamedTuple):
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
        return self.now + timedelta(seconds=if_read(self.skew_s, 0.0))

    @property
    def our_deployments(self) -> dict[str, Obj]:
        """Return the Deployments of the manifests that exist, by name; none if they are unread."""
        found = {name_of(it): it for it in if_read(self.deployments, ())}
        return {name: found[name] for name in self.manifests.deployments if name in found}


def nested_field(obj: Any, *steps: str) -> Any:
    """Return a field inside an object; None if it is missing."""
    for step in steps:
        if not isinstance(obj, Mapping):
            return None
        obj = obj.get(step)
    return obj


def name_of(obj: Obj) -> str:
    return str(nested_field(obj, "metadata", "name") or "")


def labels_of(obj: Obj) -> Mapping[str, str]:
    return _texts(obj, "labels")


def annotations_of(obj: Obj) -> Mapping[str, str]:
    return _texts(obj, "annotations")


def _texts(obj: Obj, kind: str) -> Mapping[str, str]:
    texts = nested_field(obj, "metadata", kind)
    return texts if isinstance(texts, Mapping) else {}


def listed(names: Iterable[str], limit: int = 4) -> str:
    return listed_names([*names], limit)


# Leases


def may_be_expired(lease: Lease, now: datetime, *, is_other_scheduler: bool = False) -> bool:
    """Say whether a Lease looks expired, and has to be read again to see whether it is renewed.

    The Lease of another scheduler counts as long as our scheduler accepts it.
    """
    renewed = parse_time(lease.spec.renew_time)
    if not lease.spec.holder_identity or renewed is None:
        return False
    claimed_s = lease.spec.lease_duration_seconds
    limit_s = lease_duration_s(claimed_s) if is_other_scheduler else claimed_s or DEFAULT_LEASE_S
    return not -CLOCK_S <= (now - renewed).total_seconds() <= limit_s


def is_alive(lease: Lease, facts: InstallationFacts, *, is_other_scheduler: bool = False) -> bool:
    if not lease.spec.holder_identity:
        return False
    if lease.metadata.uid in facts.renewed:
        return True
    return bool(lease.spec.renew_time) and not may_be_expired(
        lease, facts.server_now, is_other_scheduler=is_other_scheduler
    )


def parse_time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else None


# Settings


def containers_of(deployment: Obj) -> list[Obj]:
    return list(nested_field(deployment, "spec", "template", "spec", "containers") or ())


def settings_of(deployment: Obj) -> Mapping[str, str]:
    """Return the settings by the names of their variables; flags override variables."""
    settings: dict[str, str] = {}
    for container in containers_of(deployment)[:1]:
        for variable in container.get("env") or ():
            name = str(variable.get("name"))
            if name.startswith(_PREFIX):
                value = UNKNOWN_VALUE if "valueFrom" in variable else variable.get("value") or ""
                settings[name.removeprefix(_PREFIX)] = value
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        for word, following in zip_longest(words, words[1:], fillvalue=""):
            name, equals, value = word.partition("=")
            if name.startswith("--"):
                setting = name.removeprefix("--").replace("-", "_").upper()
                settings[setting] = value if equals else following
    return settings


def has_hidden_settings(deployment: Obj) -> bool:
    has_more = any("envFrom" in it for it in containers_of(deployment)[:1])
    return has_more or "CONFIG" in settings_of(deployment)


def webhook_setting(facts: InstallationFacts, setting: str, default: str) -> str:
    """Return a setting of the webhook; `UNKNOWN_VALUE` if no Deployment shows it."""
    return _setting(facts, "webhook", setting, default)


def scheduler_setting(facts: InstallationFacts, setting: str, default: str) -> str:
    return _setting(facts, "scheduler", setting, default)


def _setting(facts: InstallationFacts, process: str, setting: str, default: str) -> str:
    """Return a setting of a process.

    In a Deployment of all processes its own settings have a prefix: WEBHOOK_ or SCHEDULER_.
    """
    own_name = f"{process.upper()}_{setting}"
    for deployment in if_read(facts.deployments, ()):
        settings = settings_of(deployment)
        is_ours = name_of(deployment) in facts.manifests.deployments
        for name in (own_name, setting) if is_ours else (own_name,):
            if name in settings:
                return settings[name]
    is_visible = any(
        name_of(it) == f"trainer-kai-{process}" and not has_hidden_settings(it)
        for it in if_read(facts.deployments, ())
    )
    return default if is_visible else UNKNOWN_VALUE


def other_scheduler_objects(facts: InstallationFacts) -> DuplicateSchedulerObjects:
    """Return the Leases and Deployments that show other schedulers with our scheduler name."""
    installation = facts.installation
    own_name = Key(installation.namespace, SCHEDULER)
    shards = _kai_setting(facts, "KAI_SHARDS", "default")
    return duplicate_scheduler_objects(
        installation.scheduler_name, kai_namespaces(facts), shards, own_name
    )


def kai_namespaces(facts: InstallationFacts) -> list[str]:
    """Return the namespaces in which another KAI scheduler can run, as our scheduler has them."""
    return _kai_setting(facts, "KAI_NAMESPACES", SCHEDULER_NAME)


def _kai_setting(facts: InstallationFacts, setting: str, default: str) -> list[str]:
    """Return a list in the settings of the scheduler; the last Deployment that shows it counts."""
    for deployment in if_read(facts.deployments, ()):
        is_ours = name_of(deployment) == SCHEDULER
        for name, value in settings_of(deployment).items():
            own_name = name if is_ours else name.removeprefix("SCHEDULER_")
            if own_name == setting and value != UNKNOWN_VALUE:
                default = value
    return [name.strip() for name in default.split(",") if name.strip()]
