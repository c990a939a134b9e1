"""The settings of each process: one model per process, and the settings that they share.

The name of a number has its unit. The docstring under a field is its text in `--help` and in
docs/settings.md. Settings must not hold secrets, because all of them are printed.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import pydantic
from pydantic import AfterValidator, BaseModel, Field

from trainer_kai.api.names import (
    AMD_GPU,
    DEFAULT_QUEUE,
    GPU,
    SCHEDULER_NAME,
    SHARED_GPU,
    STARTUP_TAINTS,
    TERMINATION_TAINTS,
)
from trainer_kai.api.scheduler_names import ACTIONS
from trainer_kai.service.setting_checks import (
    action_faults,
    checked,
    checked_hosts,
    checked_kubernetes_name,
    condition_faults,
    disabled_plugin_faults,
    gpu_replica_faults,
    kind_default_faults,
    kubernetes_name_faults,
    priority_class_faults,
    resource_name_faults,
    startup_taint_faults,
    taint_faults,
)

S = TypeVar("S", bound="Settings")
UnannotatedAccess: TypeAlias = Literal["open", "closed"]

_DAY_S: Final = 86_400.0

_Name = Annotated[str, AfterValidator(checked_kubernetes_name)]
_NameOrNone = Annotated[str, AfterValidator(lambda value: value and checked_kubernetes_name(value))]
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_YEAR_S: Final = 31_536_000
_Days = Annotated[float, Field(gt=0, le=36_500)]


class _Model(BaseModel):
    """The base of all models: frozen, and without unknown fields."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class LogSettings(_Model):
    format: Literal["json", "console"] = "json"
    """The layout of log lines: `json` writes one JSON object a line, `console` readable text."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged."""


class HealthSettings(_Model):
    address: str = ""
    """The IP address that the health server listens on; empty means all interfaces."""

    port: int = Field(default=8080, ge=0, le=65535)
    """The port of `/healthz`, `/readyz` and `/metrics`; 0, with an address, means any free port."""

    snapshot: Literal["off", "authorized"] = "off"
    """Whether the scheduler serves `/snapshot`: never (`off`), or to users that RBAC allows to
    `get` the path (`authorized`)."""

    metrics: Literal["open", "authorized"] = "open"
    """Whether `/metrics` is served to all callers (`open`), or to users that RBAC allows to `get`
    the path (`authorized`)."""


class LeaderSettings(_Model):
    """The Lease for leader election among replicas."""

    name: _Name
    """The name of the Lease."""

    namespace: _NameOrNone = ""
    """The namespace of the Lease; empty means the namespace of the process's own credentials."""

    lease_s: int = Field(default=15, ge=1)
    """The time in whole seconds after which other replicas take over from a leader that does not
    renew the Lease."""

    renew_deadline_s: _Seconds = 10.0
    """The time in seconds for which the leader retries a renewal before it stops leading."""

    retry_s: _Seconds = 2.0
    """The time in seconds between two attempts to get or renew the Lease."""

    write_s: _Seconds = 4.0
    """The time limit in seconds for one write of the leader."""

    @pydantic.model_validator(mode="after")
    def _check_timing(self) -> "LeaderSettings":
        """Check the requirements of `LeaseTiming` here, where a fault can name the settings."""
        if self.renew_deadline_s <= 1.2 * self.retry_s:
            raise ValueError("renew_deadline_s should be more than 1.2 times retry_s")
        if self.lease_s <= self.renew_deadline_s + self.write_s:
            raise ValueError("lease_s should be more than renew_deadline_s plus write_s")
        return self


class Settings(_Model):
    """The settings that all processes share."""

    kubeconfig: str = ""
    """The path of the kubeconfig file; empty means `$KUBECONFIG`, the ServiceAccount of the pod, or
    `~/.kube/config`, in this order."""

    context: str = ""
    """The context of the kubeconfig; empty means its current context."""

    mode: Literal["bundled", "external"] = "bundled"
    """Which scheduler binds pods: trainer-kai's own (`bundled`), or an existing KAI (`external`; do
    not run the scheduler of trainer-kai then)."""

    scheduler_name: _Name = SCHEDULER_NAME
    """The `schedulerName` of the pods that are scheduled."""

    default_queue: _Name = DEFAULT_QUEUE
    """The queue of workloads that name no queue."""

    kueue: bool = False
    """Whether Kueue runs in this cluster and suspends and resumes the TrainJobs that have the label
    `kueue.x-k8s.io/queue-name`."""

    log: LogSettings = LogSettings()
    health: HealthSettings = HealthSettings()


class GpuSharingSettings(_Model):
    """How pods share GPUs (mode `bundled`; in mode `external` KAI's own settings count)."""

    enabled: bool = True
    """Whether the scheduler binds pods that request shares of GPUs; if not, they wait."""

    runtime_class: _NameOrNone = "nvidia"
    """The RuntimeClass of pods that request shares of GPUs without a RuntimeClass of their own, and
    of reservation pods; empty means none."""

    memory_limits: Literal["off", "hami-core"] = "off"
    """Whether containers get the limit of their share of GPU memory in the environment variable
    that HAMi-core enforces, `CUDA_DEVICE_MEMORY_LIMIT` (`hami-core`), or none (`off`)."""


class _GpuSharingPart(_Model):
    """The settings that webhook and scheduler share: both prepare pods that share GPUs."""

    gpu_sharing: GpuSharingSettings = GpuSharingSettings()


class ReservationPodSettings(_Model):
    """The pods that reserve the GPUs that other pods share."""

    image: str = ""
    """The image of reservation pods, which has to contain `scheduler.agent`; empty means the image
    of the scheduler's own pod."""

    priority_class: _NameOrNone = "trainer-kai"
    """The PriorityClass of reservation pods; empty means none."""

    allocation_s: _Seconds = 40.0
    """The time in seconds after which a reservation pod without a device is deleted, and the pods
    that wait for it are planned again."""

    cdi: bool = False
    """Whether containers get the names of devices in the form of the Container Device Interface,
    `k8s.device-plugin.nvidia.com/gpu=UUID`, as the NVIDIA GPU operator expects it with CDI."""


class AvoidedNodeSettings(_Model):
    """For how long a PodGroup avoids a node that refused one of its pods."""

    first_s: int = Field(default=300, ge=0, le=_YEAR_S)
    """The time in whole seconds for which a PodGroup avoids a node that refused one of its pods for
    the first time; each next time it is twice as long. 0 means not at all."""

    most_s: int = Field(default=14_400, ge=1, le=_YEAR_S)
    """The longest time in whole seconds for which a PodGroup avoids a node."""


class QueueAccessSettings(_Model):
    """For queues without the annotation."""

    unannotated: UnannotatedAccess = "open"
    """The access to a queue if neither the queue nor a queue above it has the annotation
    `trainer-kai.dev/access`."""


class _QueueAccessPart(_Model):
    """The settings that webhook and scheduler share: both check access to queues."""

    queue_access: QueueAccessSettings = QueueAccessSettings()


class _KindDefaultsPart(_Model):
    """The settings that webhook and podgrouper share: both know the class of a workload."""

    kind_defaults: Annotated[str, checked(kind_default_faults)] = ""
    """The PriorityClass, and optionally the preemptibility, of PodGroups for which neither their
    workload nor its pods name one, by the kind of the workload: `Kind.group` or `Kind`, separated
    by commas, such as `Deployment.apps=train, Notebook=build/preemptible`; kinds that are not
    listed have KAI's defaults."""


class WebhookServerSettings(_Model):
    address: str = ""
    """The IP address that the webhook listens on; empty means all interfaces."""

    port: int = Field(default=9443, ge=0, le=65535)
    """The port that the webhook listens on; 0, with an address, means any free port."""

    read_s: _Seconds = 5.0
    """The time limit in seconds for receiving the body of a request."""

    drain_s: float = Field(default=3.0, ge=0, le=4, allow_inf_nan=False)
    """The time in seconds for which the webhook answers requests after a stop signal; meanwhile
    the API server learns that the endpoint is gone."""

    runtimes_s: _Seconds = 60.0
    """The interval in seconds at which all runtimes are read again; this finds a queue field that
    was added to their CustomResourceDefinition."""


class TlsSettings(_Model):
    source: Literal["self-managed", "cert-manager", "files"] = "self-managed"
    """The source of the webhook's certificate: the webhook itself (`self-managed`), cert-manager
    (`cert-manager`), or files that you provide (`files`)."""

    namespace: _NameOrNone = ""
    """The namespace of the Secret and the Service; empty means the namespace of the process's own
    credentials."""

    secret_name: _Name = "trainer-kai-webhook-tls"  # noqa: S105 - a name
    """The Secret with the certificate, shared by all replicas or written by cert-manager."""

    service_name: _Name = "trainer-kai-webhook"
    """The Service through which the API server calls the webhook."""

    configuration_name: _Name = "kai-trainer"
    """The name of the mutating and the validating webhook configuration that get the CA of the
    certificate."""

    extra_hosts: Annotated[str, AfterValidator(checked_hosts)] = ""
    """Additional host names and IP addresses in the certificate, separated by commas."""

    certificate_days: _Days = 365
    """The lifetime in days of a certificate that the webhook creates."""

    authority_days: _Days = 3650
    """The lifetime in days of a CA that the webhook creates."""

    overlap_s: _Seconds = 3600.0
    """The time in seconds for which both CAs are trusted before the new CA signs the certificate,
    and again before the old CA is removed."""

    check_s: _Seconds = 10.0
    """The interval in seconds of checks of the certificate and the webhook configurations."""

    certificate_file: str = ""
    """With source `files`: the path of the certificate in PEM format, followed by its intermediate
    certificates."""

    key_file: str = ""
    """With source `files`: the path of the private key in PEM format, without a password."""

    client_ca_file: str = ""
    """The path of a PEM file with the CAs of client certificates; empty means that no client
    certificate is required."""

    @pydantic.model_validator(mode="after")
    def _check_consistency(self) -> "TlsSettings":
        """Check that a rotation ends before the replaced certificate, and that files are set."""
        if self.certificate_days * _DAY_S < 6 * self.overlap_s:
            raise ValueError("certificate_days should be at least six times overlap_s")
        if self.authority_days < 2 * self.certificate_days:
            raise ValueError("authority_days should be at least twice certificate_days")
        if self.overlap_s < 2 * self.check_s:
            raise ValueError("overlap_s should be at least twice check_s")
        named = bool(self.certificate_file), bool(self.key_file)
        if named != ((True, True) if self.source == "files" else (False, False)):
            message = "certificate_file and key_file should both be set with source files"
            raise ValueError(f"{message}, and both empty with another source")
        return self


class AdmissionSettings(_Model):
    unknown_queue: Literal["warn", "deny"] = "warn"
    """The response to a TrainJob that names a queue that does not exist or has child queues: a
    warning (`warn`), or a refusal (`deny`)."""

    lint: Literal["warn", "deny", "off"] = "warn"
    """The response to a TrainJob that can never start or names objects that do not exist: a warning
    (`warn`), a refusal (`deny`), or none (`off`)."""

    nvidia_visible_devices: Literal["allow", "block"] = "allow"
    """Whether containers may set `NVIDIA_VISIBLE_DEVICES`, and so use GPUs that they did not
    request (`allow`), or may not, and get `void` unless they request GPUs (`block`; needs the
    component `device-access`)."""

    cluster: Literal["fixed", "grows"] = "fixed"
    """Whether the nodes of the cluster are fixed (`fixed`), or an autoscaler adds nodes (`grows`);
    with `grows` the current nodes are no reason for a refusal."""


class GangSettings(_Model):
    indexed_jobs: bool = False
    """Whether the pods of an Indexed Job start together if it has as many completions as
    parallelism: the webhook writes `kai.scheduler/batch-min-member` on such Jobs of this scheduler,
    unless they have it."""


class WebhookPart(_QueueAccessPart, _GpuSharingPart, _KindDefaultsPart):
    """The settings that only the webhook has."""

    admission: AdmissionSettings = AdmissionSettings()
    gangs: GangSettings = GangSettings()
    server: WebhookServerSettings = WebhookServerSettings()
    tls: TlsSettings = TlsSettings()


class WebhookSettings(WebhookPart, Settings):
    """The settings of the webhook."""


class PodgrouperPart(_KindDefaultsPart):
    """The settings that only the podgrouper has."""

    leader: LeaderSettings = LeaderSettings(name="trainer-kai-podgrouper")


class PodgrouperSettings(PodgrouperPart, Settings):
    """The settings of the podgrouper."""


class PolicySettings(_Model):
    gpu_placement: Literal["binpack", "spread", "fragmentation"] = "binpack"
    """The placement of pods with GPUs: fill up nodes (`binpack`), use the nodes with the most free
    GPUs (`spread`), or leave as few free GPUs as possible that other pods cannot use
    (`fragmentation`, which is not in KAI)."""

    cpu_placement: Literal["binpack", "spread", "fragmentation"] = "binpack"
    """The placement of pods without GPUs: by CPU (`binpack` or `spread`), or where they leave the
    most GPUs that other pods can use (`fragmentation`)."""

    victims: Literal["kai", "least-work-lost", "fewest-podgroups"] = "kai"
    """The order of victims: KAI's order (`kai`), the least work lost since a checkpoint first
    (`least-work-lost`), or as few PodGroups as possible (`fewest-podgroups`)."""

    disruption_budgets: Literal["best-effort", "always"] = "best-effort"
    """Whether reclaim may evict pods although a PodDisruptionBudget allows no disruption
    (`best-effort`), or never does (`always`)."""

    disabled: Annotated[str, checked(disabled_plugin_faults)] = ""
    """The plugins to disable, named as in `scheduler/policies`, separated by commas."""

    actions: Annotated[str, checked(action_faults)] = ",".join(ACTIONS)
    """The actions of the scheduler, separated by commas; all actions but `allocate` can evict
    running pods."""

    gpu_resources: Annotated[str, checked(resource_name_faults)] = f"{GPU},{AMD_GPU}"
    """The names of the node resources that are whole GPUs, separated by commas."""

    gpu_replicas: Annotated[str, checked(gpu_replica_faults)] = SHARED_GPU
    """The names of the node resources by which time slicing or MPS shares GPUs, separated by
    commas. A queue is charged one GPU for each, or the part that follows the name:
    `nvidia.com/gpu.shared=0.25` where each GPU has four replicas."""


class KaiSettings(_Model):
    """Where another KAI scheduler of the same name can run; this scheduler pauses beside it."""

    namespaces: Annotated[str, checked(kubernetes_name_faults)] = SCHEDULER_NAME  # its default
    """The namespaces in which another KAI scheduler can run, separated by commas; the namespace of
    this scheduler is always checked."""

    shards: Annotated[str, checked(kubernetes_name_faults)] = "default"
    """The names and partition values of the SchedulingShards of another KAI scheduler, separated by
    commas."""


class KeptRoomSettings(_Model):
    """What keeping room for large PodGroups may cost, in queues with the order `reserve`."""

    after_s: int = Field(default=1800, ge=1)
    """The time in seconds for which a PodGroup waits for room in all before room is kept for it."""

    max_percent: int = Field(default=10, ge=0, le=100)
    """How much of the GPUs of the cluster is kept at most, in percent, unless the ends of running
    pods are enforced; one node may always be kept."""

    back_off_s: int = Field(default=1800, ge=1)
    """The time in seconds for which nothing is kept for a PodGroup that has given up; each time it
    is twice as long, at most a day."""


class LeavingNodeSettings(_Model):
    """Which nodes leave the cluster: nothing starts there, and gangs are moved off them whole."""

    taints: Annotated[str, checked(taint_faults)] = ",".join(TERMINATION_TAINTS)
    """The taints of nodes that leave, separated by commas: `KEY`, or `KEY=VALUE`; empty means
    none."""

    conditions: Annotated[str, checked(condition_faults)] = ""
    """The conditions of nodes that leave, separated by commas: `TYPE` while it is True, or
    `TYPE=False` or `TYPE=Unknown`, such as `GpuUnhealthy, AcceleratedHardwareReady=False`; empty
    means none."""

    non_preemptible: Literal["evict", "keep"] = "evict"
    """Whether non-preemptible gangs are moved off nodes that leave (`evict`), or lose their pods
    with the node (`keep`)."""


class AutoscalingSettings(_Model):
    """What the scheduler does where an autoscaler adds and removes nodes."""

    enabled: bool = False
    """Whether an autoscaler (cluster-autoscaler or Karpenter) adds nodes: then pods are marked
    `Unschedulable` only for what would be of use at once, and messages say what is asked for."""

    up_to: Literal["limit", "quota"] = "limit"
    """How far nodes are asked for: up to the limits of queues (`limit`), or within their quotas
    only, so that no node is bought to be borrowed (`quota`)."""

    wait_s: int = Field(default=900, ge=1, le=86_400)
    """The time in whole seconds after which a PodGroup for which no more nodes come asks no more,
    so that those that came are removed; nodes that have joined and cannot be used yet are waited
    for up to twice this time."""

    pause_s: int = Field(default=900, ge=1, le=14_400)
    """The time in whole seconds after which it asks again; it doubles each time, up to 4 hours."""

    provisioning_requests: bool = False
    """Whether queues with the annotation `trainer-kai.dev/provisioning-class` ask for nodes by
    ProvisioningRequests of that class instead of marks on pods (needs the component
    `provisioning-requests`)."""

    keep_nodes: Literal["gangs", "off"] = "gangs"
    """Which running pods keep their nodes from being removed for cost: those of PodGroups that need
    more than one pod (`gangs`), or none (`off`). Draining a node lifts it."""

    startup_taints: Annotated[str, checked(startup_taint_faults)] = ",".join(STARTUP_TAINTS)
    """The taints that new nodes have until they can be used, separated by commas: keys, or
    beginnings of keys that end with `/`."""

    @pydantic.model_validator(mode="after")
    def _check_consistency(self) -> "AutoscalingSettings":
        if self.provisioning_requests and not self.enabled:
            without = "without it no nodes are asked for"
            raise ValueError(f"enabled should be true if provisioning_requests is: {without}")
        return self


class SchedulerPart(_QueueAccessPart, _GpuSharingPart):
    """The settings that only the scheduler has."""

    priority_classes: Annotated[str, checked(priority_class_faults)] = ""
    """The PriorityClasses that a label on a workload can choose, separated by commas; empty means
    all."""

    restrict_node_scheduling: bool = False
    """Whether pods that request GPUs run only on nodes with the label
    `node-role.kubernetes.io/gpu-worker`, and all others only on nodes with the label
    `node-role.kubernetes.io/cpu-worker`, whatever their values (KAI's setting)."""

    staleness_grace_s: _Seconds = 60.0
    """The time in seconds for which a PodGroup can run with fewer pods than its minimum before all
    its pods are evicted."""

    ungrouped_wait_s: float = Field(default=30.0, ge=0, allow_inf_nan=False)
    """The time in seconds for which a new pod with an owner waits for the podgrouper to assign it
    to a PodGroup, before it is scheduled alone; 0 means not at all."""

    max_termination_grace_s: float = Field(default=3600.0, ge=0, allow_inf_nan=False)
    """The longest termination grace period in seconds of a pod; a terminating pod with a longer
    one is deleted again with this one."""

    debug_check_s: float = Field(default=0, ge=0, allow_inf_nan=False)
    """For debugging: the interval in seconds at which the state of the scheduler is compared with a
    newly built state; 0 means never."""

    leader: LeaderSettings = LeaderSettings(name="trainer-kai-scheduler")
    kai: KaiSettings = KaiSettings()
    kept_room: KeptRoomSettings = KeptRoomSettings()
    policies: PolicySettings = PolicySettings()
    reservation_pods: ReservationPodSettings = ReservationPodSettings()
    leaving_nodes: LeavingNodeSettings = LeavingNodeSettings()
    avoided_nodes: AvoidedNodeSettings = AvoidedNodeSettings()
    autoscaling: AutoscalingSettings = AutoscalingSettings()


class SchedulerSettings(SchedulerPart, Settings):
    """The settings of the scheduler."""


class AllSettings(Settings):
    """The settings of all three processes in one."""

    webhook: WebhookPart = WebhookPart()
    podgrouper: PodgrouperPart = PodgrouperPart()
    scheduler: SchedulerPart = SchedulerPart()

    def settings_for(self, model: type[S], part: _Model) -> S:
        """As if the process ran separately."""
        shared = {name: getattr(self, name) for name in Settings.model_fields}
        return model.model_validate({**shared, **dict(part)})


PROCESSES: Final[Mapping[str, type[Settings]]] = {
    "webhook": WebhookSettings,
    "podgrouper": PodgrouperSettings,
    "scheduler": SchedulerSettings,
}
