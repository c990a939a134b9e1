"""The reading shell: everything that the checks need, at once, and never for longer than a while.

What is slow, fails or is forbidden keeps nothing else from being read.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from trainer_kai.api.lease import Lease
from trainer_kai.api.meta import Key, Meta, PartialObject
from trainer_kai.api.names import (
    ADMISSION_REGISTRATION,
    AMD_GPU,
    API_EXTENSIONS,
    GPU,
    KUEUE_QUEUE,
)
from trainer_kai.api.resource import Resource
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
)
from trainer_kai.cli.doctor import trials
from trainer_kai.cli.doctor.asking import Asking, told
from trainer_kai.cli.doctor.expected import Account, Right, expected
from trainer_kai.cli.doctor.facts import Facts, Group, Obj, Site, Trial, at, name_of
from trainer_kai.cli.doctor.finding import Fact, Unread
from trainer_kai.cli.doctor.kinds import JOBSET_DEFINITIONS, TRAINER_DEFINITIONS
from trainer_kai.cli.doctor.living import is_doubtful
from trainer_kai.cli.doctor.place import place_for
from trainer_kai.cli.doctor.rights import rights_of
from trainer_kai.cli.doctor.settled import rivals_of
from trainer_kai.cli.doctor.trust import secret_name
from trainer_kai.kube.client import Client
from trainer_kai.kube.errors import Forbidden, NotFound
from trainer_kai.kube.patience import finish_within
from trainer_kai.kube.request import Request, Selection

__all__ = ["Wish", "look"]

_LIMIT_S: Final = 30.0  # for all of it
_AT_ONCE: Final = 16
_RENEWED_S: Final = 4.0  # whoever leads renews its Lease more often
_PAGES: Final = 10
_NOTED: Final = '"f:kaiScheduler"'  # in what the API server notes of who wrote which field
_GPUS: Final = (GPU, AMD_GPU)


class _GroupSpec(msgspec.Struct, frozen=True, gc=False):
    queue: str = ""


class _Group(msgspec.Struct, frozen=True, gc=False):
    metadata: Meta
    spec: _GroupSpec = _GroupSpec()


class _NodeStatus(msgspec.Struct, frozen=True, gc=False):
    allocatable: Mapping[str, Any] = {}


class _Node(msgspec.Struct, frozen=True, gc=False):
    metadata: Meta
    status: _NodeStatus = _NodeStatus()


def _kind(group: str, plural: str, kind: str, *, namespaced: bool = False) -> Resource[Any]:
    return Resource(group, "v1", plural, kind, namespaced=namespaced, struct=PartialObject)


_DEFINITIONS: Final = _kind(API_EXTENSIONS, "customresourcedefinitions", "CustomResourceDefinition")
_CONFIGURATIONS: Final = tuple(
    _kind(ADMISSION_REGISTRATION, f"{it.lower()}webhookconfigurations", f"{it}WebhookConfiguration")
    for it in ("Mutating", "Validating")
)
_POLICIES: Final = _kind(
    ADMISSION_REGISTRATION, "mutatingadmissionpolicies", "MutatingAdmissionPolicy"
)
_VALIDATING: Final = (
    _kind(ADMISSION_REGISTRATION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    _kind(
        ADMISSION_REGISTRATION,
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
    ),
)
_DEPLOYMENTS: Final = _kind("apps", "deployments", "Deployment", namespaced=True)
_SECRETS: Final = _kind("", "secrets", "Secret", namespaced=True)
_ACCOUNTS: Final = _kind("", "serviceaccounts", "ServiceAccount", namespaced=True)
_NAMED_GROUPS: Final = Resource(
    PODGROUPS.group,
    PODGROUPS.version,
    PODGROUPS.plural,
    PODGROUPS.kind,
    namespaced=True,
    struct=_Group,
)
_GPU_NODES: Final = Resource(
    NODES.group, NODES.version, NODES.plural, NODES.kind, namespaced=False, struct=_Node
)
_TRIALS: Final[Mapping[str, tuple[Resource[Any], Callable[..., dict[str, Any]]]]] = {
    "jobset": (JOBSETS, trials.jobset),
    "trainjob": (TRAINJOBS, trials.trainjob),
    "gang_pod": (PODS, trials.gang_pod),
    "foreign_pod": (PODS, trials.foreign_pod),
}


class Wish(NamedTuple):
    """What whoever asks wants."""

    namespace: str
    scheduler_name: str
    try_in: str = ""  # else where the context is, if that takes part


async def look(client: Client, wish: Wish) -> Facts:
    """Return all that can be found out; raise where no API server answers at all."""
    asking = Asking(client)
    site = Site(wish.namespace, wish.scheduler_name, client.access.server)
    facts = Facts(site, expected(wish.scheduler_name, wish.namespace), client.clock.now())
    version: Fact[Obj]
    try:
        version = await client.ask(dict, Request("GET", "/version", repeatable=True))
    except (Forbidden, NotFound):
        version = Unread("you may not get /version")
    found = await _Looking(asking, facts).all(wish)
    return await _looked_again(asking, found._replace(version=version))


class _Looking:
    """One look: many questions under way."""

    def __init__(self, asking: Asking, facts: Facts) -> None:
        self._asking = asking
        self._facts = facts
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def all(self, wish: Wish) -> Facts:
        """Ask everything; what is not answered in time is unread."""
        clock = self._asking.client.clock
        asked = {name: asyncio.create_task(it) for name, it in self._questions().items()}
        tried = {name: asyncio.create_task(it) for name, it in self._trials(wish, asked).items()}
        secret = asyncio.create_task(self._secret(asked["deployments"]))
        rivals = asyncio.create_task(self._rivals(asked["deployments"]))
        rights = {
            f"rights {it.name}": asyncio.create_task(self._rights(it, asked["deployments"]))
            for it in self._facts.manifests.accounts
        }
        tasks = {**asked, **tried, **rights, "secret": secret, "rivals": rivals}
        for task in await finish_within(clock, _LIMIT_S, tasks.values()):
            task.cancel()
        return _collected(self._facts, {name: _result(task) for name, task in tasks.items()})

    def _questions(self) -> dict[str, Coroutine[Any, Any, Any]]:
        ask, site, wanted = self._asking, self._facts.site, self._facts.manifests
        definitions = (
            *JOBSET_DEFINITIONS,
            *TRAINER_DEFINITIONS,
            *(it.name for it in wanted.definitions),
        )
        where = site.namespace
        kueues = Selection(labels=KUEUE_QUEUE)
        return {
            **{f"definition {it}": ask.one(_DEFINITIONS, Key("", it)) for it in definitions},
            **{
                f"account {it.name}": ask.one(_ACCOUNTS, Key(where, it.name))
                for it in wanted.accounts
            },
            "configurations": self._every(_CONFIGURATIONS),
            "validating": self._every(_VALIDATING),
            "policies": ask.raw(_POLICIES),
            "noted_runtimes": self._noted(),
            "runtimes": ask.raw(CLUSTER_RUNTIMES),
            "namespaces": ask.every(NAMESPACES),
            "deployments": ask.raw(_DEPLOYMENTS, where),
            "leases": ask.every(LEASES, where),
            "queues": ask.every(QUEUES),
            "groups": ask.first(_NAMED_GROUPS, pages=_PAGES),
            "classes": ask.every(PRIORITY_CLASSES),
            "gpu_nodes": ask.first(_GPU_NODES, pages=_PAGES),
            "kueues": ask.first(TRAINJOBS, kueues),
        }

    def _trials(
        self, wish: Wish, asked: Mapping[str, asyncio.Task[Any]]
    ) -> dict[str, Coroutine[Any, Any, Any]]:
        async def try_out(name: str) -> Fact[tuple[Trial, float]]:
            context = self._asking.client.access.namespace
            found = self._facts._replace(
                configurations=await asked["configurations"],
                policies=await asked["policies"],
                namespaces=_metas(await asked["namespaces"]),
            )
            place = wish.try_in or place_for(found, context)
            if not place and name != "foreign_pod":
                return Unread("no namespace takes part; --try-in names one to try it in")
            if name != "trainjob":
                return await self._tried(name, place or context)
            runtimes: Fact[list[Obj]] = await asked["runtimes"]
            if isinstance(runtimes, Unread):
                return runtimes
            scheduler = self._facts.site.scheduler_name
            ours = [it for it in runtimes if trials.leaves_scheduler(it, scheduler)]
            if not ours:
                return Unread("not tried: no ClusterTrainingRuntime leaves pods to our scheduler")
            return await self._tried(name, place, name_of(ours[0]))

        return {name: try_out(name) for name in _TRIALS}

    async def _tried(self, name: str, *given: str) -> Fact[tuple[Trial, float]]:
        resource, body = _TRIALS[name]
        clock = self._asking.client.clock
        before = clock.now()
        trial = await self._asking.dry(resource, body(*given))
        if isinstance(trial, Unread):
            return trial
        return trial, _skew_s(trial, before, clock.now())

    async def _secret(self, deployments: asyncio.Task[Any]) -> Fact[Obj | None]:
        name = secret_name(self._facts._replace(deployments=await deployments))
        return await self._asking.one(_SECRETS, Key(self._facts.site.namespace, name))

    async def _rivals(self, deployments: asyncio.Task[Any]) -> tuple[Fact[Any], Fact[Any]]:
        """Return Leases and Deployments by which another scheduler of our name would show."""
        places = rivals_of(self._facts._replace(deployments=await deployments))
        leases = await self._asking.some(LEASES, places.leases)
        return leases, await self._asking.some(DEPLOYMENTS, places.deployments)

    async def _every(self, kinds: Iterable[Resource[Any]]) -> Fact[list[Obj]]:
        found: list[Obj] = []
        for resource in kinds:
            some = await self._asking.raw(resource)
            if isinstance(some, Unread):
                return some
            found += some
        return found

    async def _noted(self) -> Fact[list[str]]:
        names: list[str] = []
        for resource in (CLUSTER_RUNTIMES, RUNTIMES):
            some = await self._asking.raw(resource)
            if isinstance(some, Unread):
                return some
            names += [name_of(it) for it in some if _is_noted(it)]
        return names

    async def _rights(self, account: Account, deployments: asyncio.Task[Any]) -> Fact[list[Right]]:
        where = self._facts.site.namespace
        rights = rights_of(account, self._facts._replace(deployments=await deployments))

        async def lacks(right: Right) -> bool:
            async with self._turns:
                return await self._asking.lacks(account.name, where, right)

        first, *others = rights
        what = "create subjectaccessreviews.authorization.k8s.io"
        lacking = await told(what, lacks(first))
        if isinstance(lacking, Unread):
            return lacking
        answers = await asyncio.gather(*(told(what, lacks(it)) for it in others))
        unread = next((it for it in answers if isinstance(it, Unread)), None)
        if unread is not None:
            return unread
        judged = zip(rights, (lacking, *answers), strict=True)
        return [right for right, is_lacking in judged if is_lacking]


def _result(task: "asyncio.Task[Any]") -> Any:
    if task.done() and not task.cancelled():
        return task.result()
    return Unread(f"no answer within {_LIMIT_S:g} s")


def _collected(facts: Facts, got: Mapping[str, Any]) -> Facts:
    """Put answers where they belong."""
    tried = {name: got[name] for name in _TRIALS}
    skews = [it[1] for it in tried.values() if not isinstance(it, Unread) and it[0].got]
    nodes, groups, rivals = got["gpu_nodes"], got["groups"], got["rivals"]
    return facts._replace(
        definitions=_named("definition ", got),
        accounts={
            name: it if isinstance(it, Unread) else it is not None
            for name, it in _named("account ", got).items()
        },
        lacking=_named("rights ", got),
        configurations=got["configurations"],
        policies=got["policies"],
        validating=got["validating"],
        secret=got["secret"],
        noted_runtimes=got["noted_runtimes"],
        jobset=_trial(got["jobset"]),
        gang_pod=_trial(got["gang_pod"]),
        foreign_pod=_trial(got["foreign_pod"]),
        trainjob=_trial(got["trainjob"]),
        namespaces=_metas(got["namespaces"]),
        deployments=got["deployments"],
        leases=got["leases"],
        rivals=rivals if isinstance(rivals, Unread) else rivals[0],
        ready_rivals=rivals if isinstance(rivals, Unread) else rivals[1],
        queues=got["queues"],
        groups=groups if isinstance(groups, Unread) else [_group(it) for it in groups],
        classes=_names(got["classes"]),
        gpu_nodes=nodes if isinstance(nodes, Unread) else _counted(nodes),
        kueues=_names(got["kueues"]),
        skew_s=min(skews, key=abs) if skews else Unread("no dry run went through"),
    )


def _named(prefix: str, got: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): it for name, it in got.items() if name.startswith(prefix)}


def _trial(found: Any) -> Fact[Trial]:
    return found if isinstance(found, Unread) else found[0]


def _metas(found: Any) -> Fact[Sequence[Meta]]:
    return found if isinstance(found, Unread) else [it.metadata for it in found]


def _names(found: Any) -> Fact[Sequence[str]]:
    return found if isinstance(found, Unread) else [str(it.metadata.key) for it in found]


def _group(found: _Group) -> Group:
    return Group(str(found.metadata.key), found.spec.queue)


def _counted(nodes: Iterable[_Node]) -> tuple[int, int]:
    having = [any(_is_some(it.status.allocatable.get(gpu)) for gpu in _GPUS) for it in nodes]
    return sum(having), len(having)


def _is_some(amount: object) -> bool:
    return str(amount or "0") != "0"


def _is_noted(runtime: Obj) -> bool:
    noted = at(runtime, "metadata", "managedFields")
    return _NOTED.encode() in msgspec.json.encode(noted)


def _skew_s(trial: Trial, before: datetime, after: datetime) -> float:
    """Return how far the API server's clock is ahead: it dates objects, in whole seconds."""
    text = str(at(trial.got, "metadata", "creationTimestamp") or "")
    try:
        made = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    first, last = made - after, made + timedelta(seconds=1) - before
    if first <= timedelta() <= last:
        return 0.0
    return (first if first > timedelta() else last).total_seconds()


async def _looked_again(asking: Asking, facts: Facts) -> Facts:
    """See whether Leases that look stale are renewed all the same: then a clock is off."""
    skew_s = 0.0 if isinstance(facts.skew_s, Unread) else facts.skew_s
    now = facts.now + timedelta(seconds=skew_s)
    ours, theirs = _those(facts.leases), _those(facts.rivals)
    before = {it.metadata.uid: it for it in (*ours, *theirs)}
    is_stale = any(is_doubtful(it, now) for it in ours)
    if not is_stale and not any(is_doubtful(it, now, is_rival=True) for it in theirs):
        return facts
    clock = asking.client.clock
    await clock.sleep(_RENEWED_S)
    leases, rivals = await asyncio.gather(
        asking.every(LEASES, facts.site.namespace),
        asking.some(LEASES, rivals_of(facts).leases),
    )
    changed = {
        it.metadata.uid
        for it in (*_those(leases), *_those(rivals))
        if it.metadata.uid in before
        and it.spec.renew_time != before[it.metadata.uid].spec.renew_time
    }
    return facts._replace(now=clock.now(), leases=leases, rivals=rivals, renewed=frozenset(changed))


def _those(leases: Fact[Sequence[Lease]]) -> Sequence[Lease]:
    return () if isinstance(leases, Unread) else leases
