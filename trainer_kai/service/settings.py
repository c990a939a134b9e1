"""The settings of every process: one model each, and what they have in common.

A unit is in the name of every number, and a docstring under every field: `--help` and the table in
the README are made of them. No setting holds a secret, and none may: all are printed.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from ipaddress import ip_address
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import pydantic
from pydantic import AfterValidator, BaseModel, Field

from trainer_kai.api.names import AMD_GPU, DEFAULT_QUEUE, GPU, SCHEDULER_NAME
from trainer_kai.api.syntax import dns_subdomain_fault, label_name_fault

__all__ = [
    "ACTIONS",
    "ALWAYS_ON_PLUGINS",
    "OPTIONAL_PLUGINS",
    "PROCESSES",
    "AdmissionSettings",
    "AllSettings",
    "HealthSettings",
    "KaiSettings",
    "LeaderSettings",
    "LogSettings",
    "PodgrouperSettings",
    "PolicySettings",
    "QueueAccessSettings",
    "SchedulerSettings",
    "Settings",
    "TlsSettings",
    "UnannotatedAccess",
    "WebhookServerSettings",
    "WebhookSettings",
    "split_names",
]

S = TypeVar("S", bound="Settings")
UnannotatedAccess: TypeAlias = Literal["open", "closed"]

ACTIONS: Final = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
# What `scheduler.policies.registry` knows, which the library may not import; a test compares them.
OPTIONAL_PLUGINS: Final = (
    *("priority", "elastic", "nominatednode", "nodeavailability", "resourcetype", "nodeplacement"),
    *("proportion", "minruntime", "podaffinity", "dynamicresources", "topology", "gpupack"),
    *("gpuspread", "gpusharingorder", "numa", "sg-nodelocalgreedy", "sg-multinodegang"),
    "reflectjoborder",
)
ALWAYS_ON_PLUGINS: Final = (
    "predicates",
    "subgrouporder",
    "taskorder",
    "kubeflow",
    "ray",
    "snapshot",
)

_DAY_S: Final = 86_400.0
_LABEL: Final = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DNS_NAME: Final = re.compile(rf"(\*\.)?({_LABEL}\.)*{_LABEL}", re.IGNORECASE)


def split_names(text: str) -> list[str]:
    """Return the names of a setting that has several."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _unknown_name(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    return f"{name!r} is unknown; {meant}there are {', '.join(known)}"


def _action_faults(text: str) -> Iterator[str]:
    unknown = [_unknown_name(name, ACTIONS) for name in split_names(text) if name not in ACTIONS]
    yield from unknown
    if not unknown and ACTIONS[0] not in split_names(text):
        yield f"should have {ACTIONS[0]!r}, without which nothing starts"


def _disabled_plugin_faults(text: str) -> Iterator[str]:
    for name in split_names(text):
        if name in ALWAYS_ON_PLUGINS:
            yield f"{name!r} is always on"
        elif name not in OPTIONAL_PLUGINS:
            yield _unknown_name(name, sorted(OPTIONAL_PLUGINS))


def _resource_name_faults(text: str) -> Iterator[str]:
    yield from filter(None, map(label_name_fault, split_names(text)))


def _kubernetes_name_faults(text: str) -> Iterator[str]:
    for name in split_names(text):
        try:
            _kubernetes_name(name)
        except ValueError as error:
            yield f"{name!r} {error}"


def _priority_class_faults(text: str) -> Iterator[str]:
    yield from filter(None, map(dns_subdomain_fault, split_names(text)))


def _checked(rule: Callable[[str], Iterator[str]]) -> AfterValidator:
    """Return a validator that reports every fault of the names of a setting."""

    def check(text: str) -> str:
        faults = [*rule(text)]
        if faults:
            raise ValueError("; ".join(faults))
        return text

    return AfterValidator(check)


def _kubernetes_name(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?", value):
        message = "should have at most 63 of a-z, 0-9, - and ., and a letter or digit at each end"
        raise ValueError(message)
    return value


def _hosts(value: str) -> str:
    """Check that each can stand in a certificate and is read back as the same."""
    for host in filter(None, map(str.strip, value.split(","))):
        try:
            is_good = "%" not in str(ip_address(host))
        except ValueError:
            is_good = bool(_DNS_NAME.fullmatch(host)) and len(host) <= 253
        if not is_good:
            right = "should be a host name, or an address without brackets or zone"
            raise ValueError(f"{host} {right}")
    return value


_Name = Annotated[str, AfterValidator(_kubernetes_name)]
_NameOrNone = Annotated[str, AfterValidator(lambda value: value and _kubernetes_name(value))]
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Days = Annotated[float, Field(gt=0, le=36_500)]


class _Model(BaseModel):
    """How every model here behaves."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class LogSettings(_Model):
    """What is written down, and how."""

    format: Literal["json", "console"] = "json"
    """`json` for programs, one object a line; `console` for people."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important level that is written."""


class HealthSettings(_Model):
    """Where probes and metrics are answered."""

    address: str = ""
    """The address to listen on; empty for every interface of the machine."""

    port: int = Field(default=8080, ge=0, le=65535)
    """The port of `/healthz`, `/readyz` and `/metrics`; 0, beside an address, for any free one."""

    snapshot: Literal["off", "authorized"] = "off"
    """Whether the scheduler answers `/snapshot`: never, or to users whom RBAC lets `get` it."""

    metrics: Literal["open", "authorized"] = "open"
    """Whether `/metrics` is answered to all, or only to users whom RBAC lets `get` it."""


class LeaderSettings(_Model):
    """The Lease by which one of several replicas leads."""

    name: _Name
    """The name of the Lease."""

    namespace: _NameOrNone = ""
    """The namespace of the Lease; empty for that of our credentials."""

    lease_s: int = Field(default=15, ge=1)
    """How long a leader that is silent is still taken for one, in whole seconds."""

    renew_deadline_s: _Seconds = 10.0
    """How long the leader tries to renew before it gives up."""

    retry_s: _Seconds = 2.0
    """How long it waits between two attempts."""

    write_s: _Seconds = 4.0
    """How long a write of the leader may be under way."""

    @pydantic.model_validator(mode="after")
    def _check_timing(self) -> "LeaderSettings":
        """Check what `LeaseTiming` asks for, while the settings can still be named."""
        if self.renew_deadline_s <= 1.2 * self.retry_s:
            raise ValueError("renew_deadline_s should be more than 1.2 times retry_s")
        if self.lease_s <= self.renew_deadline_s + self.write_s:
            raise ValueError("lease_s should be more than renew_deadline_s and write_s together")
        return self


class Settings(_Model):
    """What all processes have in common."""

    kubeconfig: str = ""
    """The kubeconfig file; empty for `$KUBECONFIG`, the pod's own account or `~/.kube/config`."""

    context: str = ""
    """The context of the kubeconfig; empty for its current one."""

    mode: Literal["bundled", "external"] = "bundled"
    """Who binds pods: our scheduler (`bundled`), or a KAI, and ours is not started (`external`)."""

    scheduler_name: _Name = SCHEDULER_NAME
    """The scheduler name by which pods ask for gang scheduling."""

    default_queue: _Name = DEFAULT_QUEUE
    """The queue of a workload for which nothing else names one."""

    kueue: bool = False
    """Whether Kueue runs here, and suspends and resumes the TrainJobs that have its label."""

    log: LogSettings = LogSettings()
    health: HealthSettings = HealthSettings()


class QueueAccessSettings(_Model):
    """Which users may use queues, beside what the queues themselves say."""

    unannotated: UnannotatedAccess = "open"
    """Whether a queue that has no access annotation, up to the top, is `open` or `closed`."""


class _QueueAccessPart(_Model):
    """What webhook and scheduler have in common: both ask which users may use a queue."""

    queue_access: QueueAccessSettings = QueueAccessSettings()


class WebhookServerSettings(_Model):
    """Where the API server asks the webhook."""

    address: str = ""
    """The address on which the webhook is asked; empty for every interface of the machine."""

    port: int = Field(default=9443, ge=0, le=65535)
    """The port on which the webhook is asked; 0, beside an address, for any free one."""

    read_s: _Seconds = 5.0
    """How long the body of a request may take to arrive."""

    drain_s: float = Field(default=3.0, ge=0, le=4, allow_inf_nan=False)
    """How long it goes on answering once it is told to stop: not everybody has heard of it yet."""

    runtimes_s: _Seconds = 60.0
    """How often runtimes are read anew, for a field that their definition did not have before."""


class TlsSettings(_Model):
    """The certificate of the webhook, and where its authority is written."""

    source: Literal["self-managed", "cert-manager", "files"] = "self-managed"
    """Who makes the certificate: the webhook (`self-managed`), cert-manager, or you (`files`)."""

    namespace: _NameOrNone = ""
    """The namespace of the Secret and the Service; empty for that of our credentials."""

    secret_name: _Name = "trainer-kai-webhook-tls"  # noqa: S105 - a name
    """The Secret that all replicas keep the certificate in, or that cert-manager writes."""

    service_name: _Name = "trainer-kai-webhook"
    """The Service by which the API server reaches the webhook."""

    configuration_name: _Name = "kai-trainer"
    """The webhook configurations, mutating and validating, that have to trust the certificate."""

    extra_hosts: Annotated[str, AfterValidator(_hosts)] = ""
    """More host names and addresses for the certificate to name, with commas between them."""

    certificate_days: _Days = 365
    """How long a certificate lasts that the webhook makes."""

    authority_days: _Days = 3650
    """How long an authority lasts that the webhook makes."""

    overlap_s: _Seconds = 3600.0
    """How long both authorities are trusted until the new one signs, and again until one goes."""

    check_s: _Seconds = 10.0
    """How often the certificate and the webhook configurations are looked at."""

    certificate_file: str = ""
    """Source `files`: the certificate in PEM, and after it those between it and its authority."""

    key_file: str = ""
    """Source `files`: the key of the certificate in PEM, without a password."""

    client_ca_file: str = ""
    """The authorities, in PEM, of the clients that are answered; empty to answer every client."""

    @pydantic.model_validator(mode="after")
    def _check_consistency(self) -> "TlsSettings":
        """Check that a rotation is over before what it replaces ends, and that files are named."""
        if self.certificate_days * _DAY_S < 6 * self.overlap_s:
            raise ValueError("certificate_days should be at least six times overlap_s")
        if self.authority_days < 2 * self.certificate_days:
            raise ValueError("authority_days should be at least twice certificate_days")
        if self.overlap_s < 2 * self.check_s:
            raise ValueError("overlap_s should be at least twice check_s")
        named = bool(self.certificate_file), bool(self.key_file)
        if named != ((True, True) if self.source == "files" else (False, False)):
            message = "certificate_file and key_file should both be named with source files"
            raise ValueError(f"{message}, and neither with another one")
        return self


class AdmissionSettings(_Model):
    """What of a TrainJob is refused when it is made, and what is only a warning."""

    unknown_queue: Literal["warn", "deny"] = "warn"
    """Whether a TrainJob may name a queue that is not there (yet), or that has others below it."""

    lint: Literal["warn", "deny", "off"] = "warn"
    """What becomes of a TrainJob that could never start, or names what is not there."""

    cluster: Literal["fixed", "grows"] = "fixed"
    """Whether nodes come when they are needed (`grows`): then those of today refuse nothing."""


class WebhookPart(_QueueAccessPart):
    """What only the webhook has."""

    admission: AdmissionSettings = AdmissionSettings()
    server: WebhookServerSettings = WebhookServerSettings()
    tls: TlsSettings = TlsSettings()


class WebhookSettings(WebhookPart, Settings):
    """The settings of the webhook."""


class PodgrouperPart(_Model):
    """What only the podgrouper has."""

    leader: LeaderSettings = LeaderSettings(name="trainer-kai-podgrouper")


class PodgrouperSettings(PodgrouperPart, Settings):
    """The settings of the podgrouper."""


class PolicySettings(_Model):
    """What a site chooses about scheduling."""

    gpu_placement: Literal["binpack", "spread"] = "binpack"
    """Whether pods with GPUs fill nodes up, or keep them equally empty (`spread`)."""

    cpu_placement: Literal["binpack", "spread"] = "binpack"
    """The same for pods without GPUs, by CPU."""

    victims: Literal["kai", "least-work-lost", "fewest-units"] = "kai"
    """Who loses first: as KAI has it, the least work since a checkpoint, or who gives most."""

    disruption_budgets: Literal["best-effort", "always"] = "best-effort"
    """Whether a queue takes back what it lent although a PodDisruptionBudget lets no pod go."""

    disabled: Annotated[str, _checked(_disabled_plugin_faults)] = ""
    """Policies to leave out, by the names in `scheduler/policies`, with commas between them."""

    actions: Annotated[str, _checked(_action_faults)] = ",".join(ACTIONS)
    """The actions of a cycle, with commas between; all but `allocate` evict pods."""

    gpu_resources: Annotated[str, _checked(_resource_name_faults)] = f"{GPU},{AMD_GPU}"
    """Resources of nodes that are whole GPUs, with commas between them."""


class KaiSettings(_Model):
    """Where a KAI of our scheduler name would run: while one does, ours is paused."""

    namespaces: Annotated[str, _checked(_kubernetes_name_faults)] = SCHEDULER_NAME  # its default
    """Namespaces in which a KAI may run, with commas between; our own is always looked at too."""

    shards: Annotated[str, _checked(_kubernetes_name_faults)] = "default"
    """Names and partition values of its SchedulingShards, with commas between them."""


class SchedulerPart(_QueueAccessPart):
    """What only the scheduler has."""

    priority_classes: Annotated[str, _checked(_priority_class_faults)] = ""
    """The PriorityClasses that a label may choose, with commas between them; empty for all."""

    repair_grace_s: _Seconds = 60.0
    """How long a PodGroup may run without all of its pods before it is evicted as a stale gang."""

    max_termination_grace_s: float = Field(default=3600.0, ge=0, allow_inf_nan=False)
    """How long a pod may take to end, whatever it asks for; then it is told to end."""

    debug_check_s: float = Field(default=0, ge=0, allow_inf_nan=False)
    """How often to compare what is known with what a start would know, to debug; 0 is never."""

    leader: LeaderSettings = LeaderSettings(name="trainer-kai-scheduler")
    kai: KaiSettings = KaiSettings()
    policies: PolicySettings = PolicySettings()


class SchedulerSettings(SchedulerPart, Settings):
    """The settings of the scheduler."""


class AllSettings(Settings):
    """The settings of all three in one process."""

    webhook: WebhookPart = WebhookPart()
    podgrouper: PodgrouperPart = PodgrouperPart()
    scheduler: SchedulerPart = SchedulerPart()

    def settings_for(self, model: type[S], part: _Model) -> S:
        """Return the settings that one of them would have in a process of its own."""
        shared = {name: getattr(self, name) for name in Settings.model_fields}
        return model.model_validate({**shared, **dict(part)})


PROCESSES: Final[Mapping[str, type[Settings]]] = {
    "webhook": WebhookSettings,
    "podgrouper": PodgrouperSettings,
    "scheduler": SchedulerSettings,
}
