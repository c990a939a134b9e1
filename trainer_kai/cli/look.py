"""Look at a TrainJob in the cluster, with the rights of the user: little, and only what tells more.

Requests go one after the other over one connection. What may not be read is unknown, and no error.
"""

from typing import TYPE_CHECKING, Final, TypeVar

from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key, Object
from trainer_kai.api.names import JOBSET_NAME, POD_GROUP
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import EVENTS, JOBSETS, LEASES, PODGROUPS, QUEUES, TRAINJOBS
from trainer_kai.cli.answer import Answer, State, answer, evicted_groups
from trainer_kai.cli.found import LEASE, SEEN_PODS, Found, SeenPod
from trainer_kai.cli.titles import Title
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.errors import Forbidden, NotFound
from trainer_kai.kube.request import Selection, Target
from trainer_kai.policy.unmade import FIELDS

if TYPE_CHECKING:
    from trainer_kai.kube.client import Client

__all__ = ["look_at_pod", "look_at_trainjob"]

T = TypeVar("T", bound=Object)

_MOST_GROUPS: Final = 8  # that pods name, and that are no groups of the JobSet
_OVER: Final = frozenset({State.COMPLETE, State.FAILED})


class _Reader:
    """Reads what it may, and remembers what it may not."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self.unknown: set[str] = set()

    async def get(self, resource: Resource[T], key: Key) -> T | None:
        """Return an object, or None where there is none or nobody may tell."""
        try:
            return await self._client.get(resource, key)
        except NotFound:
            return None
        except Forbidden:
            self.unknown.add(resource.plural)
            return None

    async def list(
        self, resource: Resource[T], namespace: str, labels: str = "", fields: str = ""
    ) -> tuple[T, ...]:
        """Return the objects that are selected."""
        try:
            target = Target(resource, namespace, Selection(labels=labels, fields=fields))
            return tuple(await self._client.list(target))
        except NotFound:
            return ()  # nobody has defined that kind
        except Forbidden:
            self.unknown.add(resource.plural)
            return ()


async def look_at_trainjob(client: "Client", key: Key, scheduler_name: str) -> Answer:
    """Return the answer for a TrainJob."""
    found = Found(TRAINJOBS.kind, key, client.clock.now(), scheduler_name)
    reader = _Reader(client)
    try:
        found = found._replace(trainjob=await client.get(TRAINJOBS, key))
    except NotFound as error:
        raise _nowhere("trainjob", key, error) from error
    except Forbidden:
        reader.unknown.add(TRAINJOBS.plural)
        told = await _look_below(reader, found)
        if not told.units and not told.has_jobset:
            raise
        return told
    told = answer(found)
    return told if told.state in _OVER else await _look_below(reader, found)


async def look_at_pod(client: "Client", key: Key, scheduler_name: str) -> Answer:
    """Return the answer for a pod: of what it belongs to only its own unit."""
    try:
        pod = await client.get(SEEN_PODS, key)
    except NotFound as error:
        raise _nowhere("pod", key, error) from error
    reader, jobset = _Reader(client), pod.metadata.labels.get(JOBSET_NAME, "")
    found = Found(SEEN_PODS.kind, key, client.clock.now(), scheduler_name, pods=(pod,))
    if not jobset:
        groups = await _named(reader, found)
        return answer(await _look_closer(reader, found._replace(groups=groups)))
    above = Key(key.namespace, jobset)
    job = await reader.get(TRAINJOBS, above)
    kind = TRAINJOBS.kind if job else JOBSETS.kind
    found = found._replace(kind=kind, key=above, trainjob=job, pods=())
    told = answer(found)
    if told.state in _OVER:  # what is left of its pods tells nothing
        return told
    return _only(await _look_below(reader, found), pod)


def _only(whole: Answer, pod: SeenPod) -> Answer:
    """Leave out the units that a pod is not in."""
    name, uid = pod.metadata.name, pod.metadata.uid
    own = [it for it in whole.units if uid in {one.metadata.uid for one in it.part.pods}]
    if not own:
        return whole._replace(notes=(*whole.notes, f"pod {name} does not count any more"))
    note = f"told is only the unit of pod {name}"
    state = whole.state if whole.reason else own[0].state
    return whole._replace(units=(own[0],), state=state, notes=(*whole.notes, note))


def _nowhere(word: str, key: Key, error: NotFound) -> ConfigError:
    message = f"is not in namespace {key.namespace}: {error.refusal.message}"
    return ConfigError([FieldError(f"{word}/{key.name}", message)])


async def _look_below(reader: _Reader, found: Found) -> Answer:
    namespace, name = found.key
    jobset = await reader.get(JOBSETS, found.key)
    if jobset is not None and found.trainjob and not _is_of(jobset, found.trainjob.metadata.uid):
        jobset = None  # somebody else's, of that name
    of_jobset = f"{JOBSET_NAME}={name}"
    groups = await reader.list(PODGROUPS, namespace, of_jobset)
    pods = await reader.list(SEEN_PODS, namespace, of_jobset)
    found = found._replace(jobset=jobset, groups=groups, pods=pods)
    found = found._replace(groups=(*groups, *await _named(reader, found)))
    return answer(await _look_closer(reader, found))


async def _named(reader: _Reader, found: Found) -> tuple[PodGroup, ...]:
    """Return the groups that pods name, and that are not known yet."""
    known = {group.metadata.name for group in found.groups}
    named = {pod.metadata.annotations.get(POD_GROUP, "") for pod in found.pods} - known - {""}
    if PODGROUPS.plural in reader.unknown:
        return ()
    keys = (Key(found.key.namespace, name) for name in sorted(named)[:_MOST_GROUPS])
    return tuple([it for key in keys if (it := await reader.get(PODGROUPS, key))])


async def _look_closer(reader: _Reader, found: Found) -> Found:
    """Read what would say more of those who wait."""
    found = found._replace(unknown=frozenset(reader.unknown))
    first = answer(found)
    reasons = (first.reason, *(unit.reason for unit in first.units))
    titles = {it.title for it in reasons if it is not None}
    namespace, name = found.key
    if Title.JOBSET_MISSING in titles:
        of_job = f"involvedObject.kind=TrainJob,involvedObject.name={name},type=Warning"
        found = found._replace(events=await reader.list(EVENTS, namespace, fields=of_job))
    elif Title.PODS_MISSING in titles:
        found = found._replace(events=await reader.list(EVENTS, namespace, fields=FIELDS))
    evicted = next(evicted_groups(first.units), None)
    if evicted is not None:
        of_group = f"involvedObject.kind=PodGroup,involvedObject.name={evicted.metadata.name}"
        said = await reader.list(EVENTS, namespace, fields=f"{of_group},reason=Evict")
        found = found._replace(evictions=said)
    if any(unit.reason and unit.heads.unplaced for unit in first.units):
        lease = await reader.get(LEASES, LEASE)
        if LEASES.plural not in reader.unknown:
            found = found._replace(leases=(lease,) if lease else ())
    if Title.NOTHING_SAID in titles:
        queues = {group.spec.queue for group in found.groups}
        there = {it: await reader.get(QUEUES, Key("", it)) is not None for it in sorted(queues)}
        if QUEUES.plural not in reader.unknown:
            found = found._replace(queues=there)
    elif LEASES.plural in reader.unknown:
        reader.unknown.remove(LEASES.plural)  # somebody has said more than it could
    return found._replace(unknown=frozenset(reader.unknown))


def _is_of(jobset: JobSet, uid: str) -> bool:
    owner = jobset.metadata.controller
    return owner is not None and owner.uid == uid
