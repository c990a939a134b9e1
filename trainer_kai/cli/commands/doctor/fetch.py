"""Fetch all facts that the checks need, concurrently and within a time limit.

A read that is slow, fails or is forbidden does not block others.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from trainer_kai.api.cluster_kinds import Lease
from trainer_kai.api.meta import Key, Meta, PartialObject
from trainer_kai.api.names import (
    ADMISSION_REGISTRATION,
    AMD_GPU,
    API_EXTENSIONS,
    CPU_WORKER,
    GPU,
    GPU_WORKER,
    KUEUE_QUEUE,
    NODE,
    RESERVATION_APP,
)
from trainer_kai.api.resources import (
    CLUSTER_RUNTIMES,
    DEPLOYMENTS,
    JOBSETS,
    LEASES,
    NAMESPACES,
    NODES,
    PODGROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    RUNTIMES,
    TRAINJOBS,
    Resource,
)
from trainer_kai.cli.commands.doctor import dry_run_objects
from trainer_kai.cli.commands.doctor.api_reader import ApiReader, read_fact
from trainer_kai.cli.commands.doctor.checks.api_kinds import (
    JOBSET_DEFINITIONS,
    TRAINER_DEFINITIONS,
)
from trainer_kai.cli.commands.doctor.checks.certificates import secret_name
from trainer_kai.cli.commands.doctor.checks.permissions import (
    SCHEDULER,
    needed_permissions,
)
from trainer_kai.cli.commands.doctor.dry_run_objects import dry_run_namespace
from trainer_kai.cli.commands.doctor.expected import (
    ExpectedAccount,
    Permission,
    expected_manifests,
)
from trainer_kai.cli.commands.doctor.facts import (
    DryRun,
    Installation,
    InstallationFacts,
    NodeFacts,
    Obj,
    PodGroupQueue,
    may_be_expired,
    name_of,
    nested_field,
    other_scheduler_objects,
)
from trainer_kai.cli.commands.doctor.finding import Fact, Unread
from trainer_kai.kube.client import Client
from trainer_kai.kube.process.tasks import finish_within
from trainer_kai.kube.rest.request import Request, Selection
from trainer_kai.kube.rest.response import Forbidden, NotFound

_LIMIT_S: Final = 30.0  # for all of it
_MAX_CONCURRENT: Final = 16
_RENEW_WAIT_S: Final = 4.0  # a leader renews its Lease more often
_PAGES: Final = 10
_QUEUE_FIELD: Final = '"f:kaiScheduler"'  # in metadata.managedFields
_GPUS: Final = (GPU, AMD_GPU)
_SCHEDULER_LEASES: Final = Selection(fields=f"metadata.name={SCHEDULER}")  # in all namespaces


class _PartialPodGroupSpec(msgspec.Struct, frozen=True, gc=False):
    queue: str = ""


class _PartialPodGroup(msgspec.Struct, frozen=True, gc=False):
    metadata: Meta
    spec: _PartialPodGroupSpec = _PartialPodGroupSpec()


class _NodeStatus(msgspec.Struct, frozen=True, gc=False):
    allocatable: Mapping[str, Any] = {}


class _Node(msgspec.Struct, frozen=True, gc=False):
    metadata: Meta
    status: _NodeStatus = _NodeStatus()


def _resource(group: str, plural: str, kind: str, *, namespaced: bool = False) -> Resource[Any]:
    return Resource(group, "v1", plural, kind, namespaced=namespaced, struct=PartialObject)


_DEFINITIONS: Final = _resource(
    API_EXTENSIONS, "customresourcedefinitions", "CustomResourceDefinition"
)
_CONFIGURATIONS: Final = tuple(
    _resource(
        ADMISSION_REGISTRATION, f"{it.lower()}webhookconfigurations", f"{it}WebhookConfiguration"
    )
    for it in ("Mutating", "Validating")
)
_MUTATING_POLICIES: Final = _resource(
    ADMISSION_REGISTRATION, "mutatingadmissionpolicies", "MutatingAdmissionPolicy"
)
_VALIDATING_POLICIES: Final = (
    _resource(ADMISSION_REGISTRATION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    _resource(
        ADMISSION_REGISTRATION,
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
    ),
)
_RUNTIME_CLASSES: Final = _resource(NODE, "runtimeclasses", "RuntimeClass")
_DEPLOYMENTS: Final = _resource("apps", "deployments", "Deployment", namespaced=True)
_SECRETS: Final = _resource("", "secrets", "Secret", namespaced=True)
_ACCOUNTS: Final = _resource("", "serviceaccounts", "ServiceAccount", namespaced=True)
_PODGROUP_QUEUES: Final = Resource(
    PODGROUPS.group,
    PODGROUPS.version,
    PODGROUPS.plural,
    PODGROUPS.kind,
    namespaced=True,
    struct=_PartialPodGroup,
)
_GPU_NODES: Final = Resource(
    NODES.group, NODES.version, NODES.plural, NODES.kind, namespaced=False, struct=_Node
)
_DRY_RUNS: Final[Mapping[str, tuple[Resource[Any], Callable[..., dict[str, Any]]]]] = {
    "jobset": (JOBSETS, dry_run_objects.jobset),
    "trainjob": (TRAINJOBS, dry_run_objects.trainjob),
    "gang_pod": (PODS, dry_run_objects.gang_pod),
    "foreign_pod": (PODS, dry_run_objects.foreign_pod),
}


class DoctorOptions(NamedTuple):
    """The options of the command."""

    namespace: str
    scheduler_name: str
    try_in: str = ""  # else the namespace of the context, if it takes part


async def fetch_facts(client: Client, options: DoctorOptions) -> InstallationFacts:
    """Return all facts that can be read; raise if no API server responds."""
    reader = ApiReader(client)
    installation = Installation(
        options.namespace, options.scheduler_name, client.rest_config.server
    )
    facts = InstallationFacts(
        installation,
        expected_manifests(options.scheduler_name, options.namespace),
        client.clock.now(),
    )
    version: Fact[Obj]
    try:
        version = await client.call(dict, Request("GET", "/version", repeatable=True))
    except (Forbidden, NotFound):
        version = Unread("you may not get /version")
    found = await _FactReader(reader, facts).fetch_all(options)
    return await _with_renewed_leases(reader, found._replace(version=version))


class _FactReader:
    """Reads all facts once, many of them concurrently."""

    def __init__(self, reader: ApiReader, facts: InstallationFacts) -> None:
        self._reader = reader
        self._facts = facts
        self._semaphore = asyncio.Semaphore(_MAX_CONCURRENT)

    async def fetch_all(self, options: DoctorOptions) -> InstallationFacts:
        """Send all reads and dry runs; a fact without a response in time is unread."""
        clock = self._reader.client.clock
        reads = {name: asyncio.create_task(it) for name, it in self._reads().items()}
        dry_runs = {
            name: asyncio.create_task(it) for name, it in self._dry_runs(options, reads).items()
        }
        secret = asyncio.create_task(self._secret(reads["deployments"]))
        other_schedulers = asyncio.create_task(self._other_schedulers(reads["deployments"]))
        permissions = {
            f"rights {it.name}": asyncio.create_task(
                self._denied_permissions(it, reads["deployments"])
            )
            for it in self._facts.manifests.accounts
        }
        tasks = {
            **reads,
            **dry_runs,
            **permissions,
            "secret": secret,
            "other_schedulers": other_schedulers,
        }
        for task in await finish_within(clock, _LIMIT_S, tasks.values()):
            task.cancel()
        return _with_results(self._facts, {name: _result(task) for name, task in tasks.items()})

    def _reads(self) -> dict[str, Coroutine[Any, Any, Any]]:
        reader, installation, manifests = (
            self._reader,
            self._facts.installation,
            self._facts.manifests,
        )
        definitions = (
            *JOBSET_DEFINITIONS,
            *TRAINER_DEFINITIONS,
            *(it.name for it in manifests.definitions),
        )
        where = installation.namespace
        with_kueue_queue = Selection(labels=KUEUE_QUEUE)
        return {
            **{f"definition {it}": reader.get(_DEFINITIONS, Key("", it)) for it in definitions},
            **{
                f"account {it.name}": reader.get(_ACCOUNTS, Key(it.namespace or where, it.name))
                for it in manifests.accounts
            },
            "configurations": self._list_kinds(_CONFIGURATIONS),
            "validating": self._list_kinds(_VALIDATING_POLICIES),
            "policies": reader.list_raw(_MUTATING_POLICIES),
            "runtimes_with_queue_field": self._runtimes_with_queue_field(),
            "runtimes": reader.list_raw(CLUSTER_RUNTIMES),
            "namespaces": reader.list_all(NAMESPACES),
            "deployments": reader.list_raw(_DEPLOYMENTS, where),
            "leases": reader.list_all(LEASES, where),
            "queues": reader.list_all(QUEUES),
            "podgroups": reader.list_first(_PODGROUP_QUEUES, pages=_PAGES),
            "priority_classes": reader.list_all(PRIORITY_CLASSES),
            "nodes": reader.list_first(_GPU_NODES, pages=_PAGES),
            "kueue_trainjobs": reader.list_first(TRAINJOBS, with_kueue_queue),
            "runtime_classes": reader.list_all(_RUNTIME_CLASSES),
            "reservation_pods": reader.list_raw(PODS, RESERVATION_APP),
            "scheduler_leases": reader.list_first(LEASES, _SCHEDULER_LEASES),
        }

    def _dry_runs(
        self, options: DoctorOptions, reads: Mapping[str, asyncio.Task[Any]]
    ) -> dict[str, Coroutine[Any, Any, Any]]:
        async def try_out(name: str) -> Fact[tuple[DryRun, float]]:
            context = self._reader.client.rest_config.namespace
            found = self._facts._replace(
                configurations=await reads["configurations"],
                policies=await reads["policies"],
                namespaces=_metas(await reads["namespaces"]),
            )
            namespace = options.try_in or dry_run_namespace(found, context)
            if not namespace and name != "foreign_pod":
                return Unread("no namespace takes part; set one with --try-in")
            if name != "trainjob":
                return await self._dry_run(name, namespace or context)
            runtimes: Fact[list[Obj]] = await reads["runtimes"]
            if isinstance(runtimes, Unread):
                return runtimes
            scheduler = self._facts.installation.scheduler_name
            our_runtimes = [
                it for it in runtimes if dry_run_objects.is_for_scheduler(it, scheduler)
            ]
            if not our_runtimes:
                return Unread("not tried: no ClusterTrainingRuntime is for this scheduler")
            return await self._dry_run(name, namespace, name_of(our_runtimes[0]))

        return {name: try_out(name) for name in _DRY_RUNS}

    async def _dry_run(self, name: str, *arguments: str) -> Fact[tuple[DryRun, float]]:
        resource, body = _DRY_RUNS[name]
        clock = self._reader.client.clock
        before = clock.now()
        dry_run = await self._reader.dry_run(resource, body(*arguments))
        if isinstance(dry_run, Unread):
            return dry_run
        return dry_run, _skew_s(dry_run, before, clock.now())

    async def _secret(self, deployments: asyncio.Task[Any]) -> Fact[Obj | None]:
        name = secret_name(self._facts._replace(deployments=await deployments))
        return await self._reader.get(_SECRETS, Key(self._facts.installation.namespace, name))

    async def _other_schedulers(
        self, deployments: asyncio.Task[Any]
    ) -> tuple[Fact[Any], Fact[Any]]:
        """Return the Leases and Deployments of other schedulers with our scheduler name."""
        places = other_scheduler_objects(self._facts._replace(deployments=await deployments))
        leases = await self._reader.get_existing(LEASES, places.leases)
        return leases, await self._reader.get_existing(DEPLOYMENTS, places.deployments)

    async def _list_kinds(self, kinds: Iterable[Resource[Any]]) -> Fact[list[Obj]]:
        found: list[Obj] = []
        for resource in kinds:
            objects = await self._reader.list_raw(resource)
            if isinstance(objects, Unread):
                return objects
            found += objects
        return found

    async def _runtimes_with_queue_field(self) -> Fact[list[str]]:
        names: list[str] = []
        for resource in (CLUSTER_RUNTIMES, RUNTIMES):
            objects = await self._reader.list_raw(resource)
            if isinstance(objects, Unread):
                return objects
            names += [name_of(it) for it in objects if _had_queue_field(it)]
        return names

    async def _denied_permissions(
        self, account: ExpectedAccount, deployments: asyncio.Task[Any]
    ) -> Fact[list[Permission]]:
        where = self._facts.installation.namespace
        permissions = needed_permissions(
            account, self._facts._replace(deployments=await deployments)
        )

        user = Key(account.namespace or where, account.name)

        async def lacks(permission: Permission) -> bool:
            async with self._semaphore:
                return await self._reader.is_denied(user, permission)

        first, *others = permissions
        action = "create subjectaccessreviews.authorization.k8s.io"
        denied = await read_fact(action, lacks(first))
        if isinstance(denied, Unread):
            return denied
        answers = await asyncio.gather(*(read_fact(action, lacks(it)) for it in others))
        unread = next((it for it in answers if isinstance(it, Unread)), None)
        if unread is not None:
            return unread
        results = zip(permissions, (denied, *answers), strict=True)
        return [permission for permission, is_denied in results if is_denied]


def _result(task: "asyncio.Task[Any]") -> Any:
    if task.done() and not task.cancelled():
        return task.result()
    return Unread(f"no response within {_LIMIT_S:g} s")


def _with_results(facts: InstallationFacts, results: Mapping[str, Any]) -> InstallationFacts:
    """Return the facts with the results of the reads in their fields."""
    dry_runs = {name: results[name] for name in _DRY_RUNS}
    skews = [it[1] for it in dry_runs.values() if not isinstance(it, Unread) and it[0].got]
    nodes, groups = results["nodes"], results["podgroups"]
    others = results["other_schedulers"]
    other_leases, other_deployments = (others, others) if isinstance(others, Unread) else others
    return facts._replace(
        definitions=_with_prefix("definition ", results),
        accounts={
            name: it if isinstance(it, Unread) else it is not None
            for name, it in _with_prefix("account ", results).items()
        },
        denied_permissions=_with_prefix("rights ", results),
        configurations=results["configurations"],
        policies=results["policies"],
        validating_policies=results["validating"],
        secret=results["secret"],
        runtimes_with_queue_field=results["runtimes_with_queue_field"],
        jobset=_dry_run_of(results["jobset"]),
        gang_pod=_dry_run_of(results["gang_pod"]),
        foreign_pod=_dry_run_of(results["foreign_pod"]),
        trainjob=_dry_run_of(results["trainjob"]),
        namespaces=_metas(results["namespaces"]),
        deployments=results["deployments"],
        leases=results["leases"],
        other_scheduler_leases=other_leases,
        other_scheduler_deployments=other_deployments,
        queues=results["queues"],
        podgroup_queues=groups
        if isinstance(groups, Unread)
        else [_podgroup_queue(it) for it in groups],
        priority_classes=_names(results["priority_classes"]),
        nodes=nodes if isinstance(nodes, Unread) else _node_facts(nodes),
        kueue_trainjobs=_names(results["kueue_trainjobs"]),
        runtime_classes=_names(results["runtime_classes"]),
        reservation_pods=results["reservation_pods"],
        scheduler_leases=results["scheduler_leases"],
        skew_s=min(skews, key=abs) if skews else Unread("no dry run succeeded"),
    )


def _with_prefix(prefix: str, results: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): it for name, it in results.items() if name.startswith(prefix)
    }


def _dry_run_of(found: Any) -> Fact[DryRun]:
    return found if isinstance(found, Unread) else found[0]


def _metas(found: Any) -> Fact[Sequence[Meta]]:
    return found if isinstance(found, Unread) else [it.metadata for it in found]


def _names(found: Any) -> Fact[Sequence[str]]:
    return found if isinstance(found, Unread) else [str(it.metadata.key) for it in found]


def _podgroup_queue(found: _PartialPodGroup) -> PodGroupQueue:
    return PodGroupQueue(str(found.metadata.key), found.spec.queue)


def _node_facts(nodes: Sequence[_Node]) -> NodeFacts:
    resources = [
        {name for name, amount in it.status.allocatable.items() if str(amount) != "0"}
        for it in nodes
    ]
    vendors = tuple(f"{gpu.partition('/')[0]}/" for gpu in _GPUS)
    found = {name for here in resources for name in here if name.startswith(vendors)}
    has_gpus = [not here.isdisjoint(_GPUS) for here in resources]
    labels = [it.metadata.labels for it in nodes]
    return NodeFacts(
        with_gpus=sum(has_gpus),
        number=len(nodes),
        of_vendors=tuple(sorted(found)),
        unlabelled_gpus=sum(
            has and GPU_WORKER not in here for has, here in zip(has_gpus, labels, strict=True)
        ),
        cpu_workers=sum(CPU_WORKER in here for here in labels),
    )


def _had_queue_field(runtime: Obj) -> bool:
    managed_fields = nested_field(runtime, "metadata", "managedFields")
    return _QUEUE_FIELD.encode() in msgspec.json.encode(managed_fields)


def _skew_s(dry_run: DryRun, before: datetime, after: datetime) -> float:
    """Return how far the API server's clock is ahead; its timestamps are in whole seconds."""
    text = str(nested_field(dry_run.got, "metadata", "creationTimestamp") or "")
    try:
        created = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    first, last = created - after, created + timedelta(seconds=1) - before
    if first <= timedelta() <= last:
        return 0.0
    return (first if first > timedelta() else last).total_seconds()


async def _with_renewed_leases(reader: ApiReader, facts: InstallationFacts) -> InstallationFacts:
    """Read Leases that look expired once more: if they are renewed, a clock is off."""
    skew_s = 0.0 if isinstance(facts.skew_s, Unread) else facts.skew_s
    now = facts.now + timedelta(seconds=skew_s)
    our_leases, other_leases = (
        _known_leases(facts.leases),
        _known_leases(facts.other_scheduler_leases),
    )
    before = {it.metadata.uid: it for it in (*our_leases, *other_leases)}
    is_stale = any(may_be_expired(it, now) for it in our_leases)
    if not is_stale and not any(
        may_be_expired(it, now, is_other_scheduler=True) for it in other_leases
    ):
        return facts
    clock = reader.client.clock
    await clock.sleep(_RENEW_WAIT_S)
    leases, other_schedulers = await asyncio.gather(
        reader.list_all(LEASES, facts.installation.namespace),
        reader.get_existing(LEASES, other_scheduler_objects(facts).leases),
    )
    changed = {
        it.metadata.uid
        for it in (*_known_leases(leases), *_known_leases(other_schedulers))
        if it.metadata.uid in before
        and it.spec.renew_time != before[it.metadata.uid].spec.renew_time
    }
    return facts._replace(
        now=clock.now(),
        leases=leases,
        other_scheduler_leases=other_schedulers,
        renewed=frozenset(changed),
    )


def _known_leases(leases: Fact[Sequence[Lease]]) -> Sequence[Lease]:
    return () if isinstance(leases, Unread) else leases
