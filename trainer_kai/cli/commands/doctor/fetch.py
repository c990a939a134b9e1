"""Fetch all facts that the checks need, concurrently and within a time limit.

`_LISTS` is the table of what is listed; objects that are read by name, and dry runs, depend on what
is expected and on other facts. A read that is slow, fails or is forbidden does not block others.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from trainer_kai.api import resources
from trainer_kai.api.meta import Key, Meta, PartialObject
from trainer_kai.api.names import (
    ADMISSION_REGISTRATION,
    AMD_GPU,
    API_EXTENSIONS,
    AVOIDED_NODES,
    CPU_WORKER,
    GPU,
    GPU_WORKER,
    KUEUE_QUEUE,
    NODE,
    RESERVATION_APP,
)
from trainer_kai.api.resources import Resource
from trainer_kai.cli.commands.doctor import dry_run_objects
from trainer_kai.cli.commands.doctor.api_reader import ApiReader, ListRead, read_fact
from trainer_kai.cli.commands.doctor.checks.api_kinds import JOBSET_KINDS, TRAINER_KINDS
from trainer_kai.cli.commands.doctor.checks.certificates import secret_name
from trainer_kai.cli.commands.doctor.checks.processes import needed_permissions
from trainer_kai.cli.commands.doctor.expected import ExpectedAccount, Permission, expected_manifests
from trainer_kai.cli.commands.doctor.facts import (
    SCHEDULER,
    DryRun,
    Fact,
    Installation,
    InstallationFacts,
    NodeFacts,
    Obj,
    PodGroupQueue,
    Unread,
    all_of,
    if_read,
    may_be_expired,
    name_of,
    nested_field,
    other_scheduler_objects,
)
from trainer_kai.kube.client import Client
from trainer_kai.kube.process.tasks import finish_within
from trainer_kai.kube.rest.request import Request, Selection
from trainer_kai.kube.rest.response import Forbidden, NotFound
from trainer_kai.policy.podgroups.avoided_nodes import read_avoided_nodes

_LIMIT_S: Final = 30.0  # for all of it
_RENEW_WAIT_S: Final = 4.0  # a leader renews its Lease more often
_PAGES: Final = 10
_QUEUE_FIELD: Final = b'"f:kaiScheduler"'  # in metadata.managedFields
_GPUS: Final = (GPU, AMD_GPU)
_OURS: Final = "?"  # a namespace that stands for that of the installation

Reads = Mapping[str, "asyncio.Task[Fact[Any]]"]


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


def _podgroup_queues(groups: list[_PartialPodGroup]) -> Sequence[PodGroupQueue]:
    return [
        PodGroupQueue(
            str(it.metadata.key),
            it.spec.queue,
            read_avoided_nodes(it.metadata.annotations.get(AVOIDED_NODES, "")),
        )
        for it in groups
    ]


def _node_facts(nodes: list[_Node]) -> NodeFacts:
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


def _metas(objects: list[Any]) -> Sequence[Meta]:
    return [it.metadata for it in objects]


def _names(objects: list[Any]) -> Sequence[str]:
    return [str(it.metadata.key) for it in objects]


def _with_queue_field(runtimes: list[Obj]) -> Sequence[str]:
    """Return the runtimes that name their queue in a field, or did: managedFields keep it."""
    fields = ((it, nested_field(it, "metadata", "managedFields")) for it in runtimes)
    return [name_of(it) for it, found in fields if _QUEUE_FIELD in msgspec.json.encode(found)]


def _resource(group: str, plural: str, kind: str, struct: type[Any] = dict) -> Resource[Any]:
    return Resource(group, "v1", plural, kind, namespaced=group in ("", "apps"), struct=struct)


def _admission(kind: str, plural: str = "") -> Resource[Any]:
    return _resource(ADMISSION_REGISTRATION, plural or f"{kind.lower()}s", kind)


_DEFINITIONS: Final = _resource(
    API_EXTENSIONS, "customresourcedefinitions", "CustomResourceDefinition"
)
_SECRETS: Final = _resource("", "secrets", "Secret")
_ACCOUNTS: Final = _resource("", "serviceaccounts", "ServiceAccount")

# By the field of `InstallationFacts`; "runtimes" are only for the dry run of a TrainJob.
_LISTS: Final[Mapping[str, ListRead]] = {
    "configurations": ListRead(
        tuple(_admission(f"{it}WebhookConfiguration") for it in ("Mutating", "Validating"))
    ),
    "policies": ListRead((_admission("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),)),
    "validating_policies": ListRead(
        (
            _admission("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
            _admission("ValidatingAdmissionPolicyBinding"),
        )
    ),
    "runtimes": ListRead((replace(resources.CLUSTER_RUNTIMES, struct=dict),)),
    "runtimes_with_queue_field": ListRead(
        (
            replace(resources.CLUSTER_RUNTIMES, struct=dict),
            replace(resources.RUNTIMES, struct=dict),
        ),
        _with_queue_field,
    ),
    "namespaces": ListRead((resources.NAMESPACES,), _metas),
    "deployments": ListRead((replace(resources.DEPLOYMENTS, struct=dict),), namespace=_OURS),
    "leases": ListRead((resources.LEASES,), namespace=_OURS),
    "scheduler_leases": ListRead(
        (resources.LEASES,), selection=Selection(fields=f"metadata.name={SCHEDULER}"), pages=1
    ),
    "queues": ListRead((resources.QUEUES,)),
    "podgroup_queues": ListRead(
        (replace(resources.PODGROUPS, struct=_PartialPodGroup),), _podgroup_queues, pages=_PAGES
    ),
    "priority_classes": ListRead((resources.PRIORITY_CLASSES,), _names),
    "nodes": ListRead((replace(resources.NODES, struct=_Node),), _node_facts, pages=_PAGES),
    "kueue_trainjobs": ListRead(
        (resources.TRAINJOBS,), _names, selection=Selection(labels=KUEUE_QUEUE), pages=1
    ),
    "runtime_classes": ListRead(
        (_resource(NODE, "runtimeclasses", "RuntimeClass", PartialObject),), _names
    ),
    "reservation_pods": ListRead(
        (replace(resources.PODS, struct=dict),), namespace=RESERVATION_APP
    ),
}
_DRY_RUNS: Final[Mapping[str, tuple[Resource[Any], Callable[..., dict[str, Any]]]]] = {
    "jobset": (resources.JOBSETS, dry_run_objects.jobset),
    "trainjob": (resources.TRAINJOBS, dry_run_objects.trainjob),
    "gang_pod": (resources.PODS, dry_run_objects.gang_pod),
    "foreign_pod": (resources.PODS, dry_run_objects.foreign_pod),
}


async def fetch_facts(client: Client, installation: Installation) -> InstallationFacts:
    """Return all facts that can be read; raise if no API server responds."""
    facts = InstallationFacts(
        installation._replace(server=client.rest_config.server),
        expected_manifests(installation.scheduler_name, installation.namespace),
        client.clock.now(),
    )
    version: Fact[Obj]
    try:
        version = await client.call(dict, Request("GET", "/version", repeatable=True))
    except (Forbidden, NotFound):
        version = Unread("you may not get /version")
    reader = ApiReader(client)
    return await _with_renewed_leases(
        reader, await _fetch_all(reader, facts._replace(version=version))
    )


async def _fetch_all(reader: ApiReader, facts: InstallationFacts) -> InstallationFacts:
    """Send all reads and dry runs; a fact without a response in time is unread."""
    lists = {
        field: asyncio.create_task(reader.list_fact(_in_namespace(it, facts)))
        for field, it in _LISTS.items()
    }
    tasks = {(field, ""): task for field, task in lists.items()}
    tasks |= {at: asyncio.create_task(it) for at, it in _named_reads(reader, facts, lists)}
    for task in await finish_within(reader.client.clock, _LIMIT_S, tasks.values()):
        task.cancel()
    results: dict[str, Any] = {}
    for (field, name), task in tasks.items():
        if name:
            results.setdefault(field, {})[name] = _result(task)
        else:
            results[field] = _result(task)
    dry_runs: list[Fact[DryRun]] = [results[name] for name in _DRY_RUNS]
    skews = [it.skew_s for it in dry_runs if not isinstance(it, Unread) and it.got]
    results["skew_s"] = min(skews, key=abs) if skews else Unread("no dry run succeeded")
    del results["runtimes"]  # read for the fact about their queues only
    return facts._replace(**results)


def _in_namespace(read: ListRead, facts: InstallationFacts) -> ListRead:
    is_ours = read.namespace == _OURS
    return read._replace(namespace=facts.installation.namespace) if is_ours else read


def _result(task: "asyncio.Task[Any]") -> Any:
    if task.done() and not task.cancelled():
        return task.result()
    return Unread(f"no response within {_LIMIT_S:g} s")


def _named_reads(
    reader: ApiReader, facts: InstallationFacts, lists: Reads
) -> Iterator[tuple[tuple[str, str], Coroutine[Any, Any, Any]]]:
    """Yield reads by the field of the fact and, in a mapping of facts, the name in it."""
    manifests = facts.manifests
    definitions = (it.name for it in manifests.definitions)
    for name in (*map(str, (*JOBSET_KINDS, *TRAINER_KINDS)), *definitions):
        yield ("definitions", name), reader.get(_DEFINITIONS, Key("", name))
    for account in manifests.accounts:
        yield ("accounts", account.name), _exists(reader, _account_key(account, facts))
        denied = _denied_permissions(reader, account, facts, lists)
        yield ("denied_permissions", account.name), denied
    yield ("secret", ""), _secret(reader, facts, lists)
    for field, resource in (
        ("other_scheduler_leases", resources.LEASES),
        ("other_scheduler_deployments", resources.DEPLOYMENTS),
    ):
        yield (field, ""), _of_other_schedulers(reader, resource, facts, lists)
    for name in _DRY_RUNS:
        yield (name, ""), _dry_run(reader, name, facts, lists)


def _account_key(account: ExpectedAccount, facts: InstallationFacts) -> Key:
    return Key(account.namespace or facts.installation.namespace, account.name)


async def _exists(reader: ApiReader, account: Key) -> Fact[bool]:
    found = await reader.get(_ACCOUNTS, account)
    return found if isinstance(found, Unread) else found is not None


async def _with_deployments(facts: InstallationFacts, lists: Reads) -> InstallationFacts:
    return facts._replace(deployments=await lists["deployments"])


async def _secret(reader: ApiReader, facts: InstallationFacts, lists: Reads) -> Fact[Obj | None]:
    name = secret_name(await _with_deployments(facts, lists))
    return await reader.get(_SECRETS, Key(facts.installation.namespace, name))


async def _of_other_schedulers(
    reader: ApiReader, resource: Resource[Any], facts: InstallationFacts, lists: Reads
) -> Fact[list[Any]]:
    places = other_scheduler_objects(await _with_deployments(facts, lists))
    keys = places.leases if resource is resources.LEASES else places.deployments
    return await reader.get_existing(resource, keys)


async def _denied_permissions(
    reader: ApiReader, account: ExpectedAccount, facts: InstallationFacts, lists: Reads
) -> Fact[list[Permission]]:
    """Return what an account lacks; the others are not asked for if the first is not answered."""
    permissions = needed_permissions(account, await _with_deployments(facts, lists))
    user = _account_key(account, facts)

    async def is_denied(permission: Permission) -> Fact[bool]:
        action = "create subjectaccessreviews.authorization.k8s.io"
        return await read_fact(action, reader.is_denied(user, permission))

    first = await is_denied(permissions[0])
    if isinstance(first, Unread):
        return first
    answers = [first, *await asyncio.gather(*map(is_denied, permissions[1:]))]
    denied = all_of(dict(zip(permissions, answers, strict=True)))
    if isinstance(denied, Unread):
        return denied
    return [permission for permission, is_lacking in denied.items() if is_lacking]


async def _dry_run(
    reader: ApiReader, name: str, facts: InstallationFacts, lists: Reads
) -> Fact[DryRun]:
    resource, body = _DRY_RUNS[name]
    context = reader.client.rest_config.namespace
    found = facts._replace(
        configurations=await lists["configurations"],
        policies=await lists["policies"],
        namespaces=await lists["namespaces"],
    )
    namespace = facts.installation.try_in or dry_run_objects.dry_run_namespace(found, context)
    if not namespace and name != "foreign_pod":
        return Unread("no namespace takes part; set one with --try-in")
    if name != "trainjob":
        return await reader.dry_run(resource, body(namespace or context))
    runtimes: Fact[list[Obj]] = await lists["runtimes"]
    if isinstance(runtimes, Unread):
        return runtimes
    scheduler = facts.installation.scheduler_name
    for runtime in runtimes:
        if dry_run_objects.is_for_scheduler(runtime, scheduler):
            return await reader.dry_run(resource, body(namespace, name_of(runtime)))
    return Unread("not tried: no ClusterTrainingRuntime is for this scheduler")


async def _with_renewed_leases(reader: ApiReader, facts: InstallationFacts) -> InstallationFacts:
    """Read Leases that look expired once more: if they are renewed, a clock is off."""
    ours, others = if_read(facts.leases, ()), if_read(facts.other_scheduler_leases, ())
    now = facts.server_now
    if not any(may_be_expired(it, now) for it in ours) and not any(
        may_be_expired(it, now, is_other_scheduler=True) for it in others
    ):
        return facts
    before = {it.metadata.uid: it.spec.renew_time for it in (*ours, *others)}
    clock = reader.client.clock
    await clock.sleep(_RENEW_WAIT_S)
    leases, other_leases = await asyncio.gather(
        reader.list_fact(_in_namespace(_LISTS["leases"], facts)),
        reader.get_existing(resources.LEASES, other_scheduler_objects(facts).leases),
    )
    after = (*if_read(leases, ()), *if_read(other_leases, ()))
    changed = {
        it.metadata.uid
        for it in after
        if before.get(it.metadata.uid, it.spec.renew_time) != it.spec.renew_time
    }
    return facts._replace(
        now=clock.now(),
        leases=leases,
        other_scheduler_leases=other_leases,
        renewed=frozenset(changed),
    )
