"""Reads the owners of pods one by one, and remembers them for a while.

Of an owner only the metadata are read, and of these only what decides about PodGroups is stored. An
owner that cannot be read ends the chain, and that is remembered too: users can name owners that do
not exist, of kinds that do not exist. Only an API server that does not answer is an error.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, Generic, TypeAlias, TypeVar

from trainer_kai.api.cluster_kinds import StatefulSet
from trainer_kai.api.meta import Key, OwnerReference, PartialObject
from trainer_kai.api.names import QUEUE
from trainer_kai.api.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
)
from trainer_kai.kube.client import Client, Discovery
from trainer_kai.kube.rest.response import ApiError, NotFound, Unauthorized, is_retryable
from trainer_kai.policy.workloads.kinds import KINDS
from trainer_kai.policy.workloads.owner_chain import (
    ChainEnd,
    OwnerChain,
    OwnerRecord,
    next_owner,
    owner_record,
)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

KnownOwner: TypeAlias = Callable[[str, OwnerReference], OwnerRecord | None]

_KNOWN_S: Final = 5.0  # so long may a changed label of an owner be unknown
_NEGATIVE_S: Final = 60.0
_MOST: Final = 10_000  # of each sort of answer
_SERVED: Final[tuple[Resource[Any], ...]] = (
    PODS,
    REPLICA_SETS,
    DEPLOYMENTS,
    STATEFUL_SETS,
    DAEMON_SETS,
    JOBS,
    CRON_JOBS,
    *(kind.resource for kind in KINDS),
)
_RESOURCES: Final = {(it.group, it.kind): it for it in _SERVED}


class Remembered(Generic[K, V]):
    """Answers, each for some seconds; the oldest is forgotten when there are too many."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._answers: dict[K, tuple[float, V]] = {}

    def get(self, key: K) -> V | None:
        until_s, answer = self._answers.get(key, (0.0, None))
        return answer if until_s > self._now_s() else None

    def drop(self, key: K) -> None:
        self._answers.pop(key, None)

    def put(self, key: K, answer: V, for_s: float) -> V:
        self._answers.pop(key, None)
        if len(self._answers) >= _MOST:
            del self._answers[next(iter(self._answers))]
        self._answers[key] = self._now_s() + for_s, answer
        return answer


class OwnerReader:
    def __init__(self, client: Client, known: KnownOwner) -> None:
        """*known* returns an owner that is watched, so that it is not read."""
        now_s = client.clock.monotonic_s
        self._client = client
        self._known = known
        self._discovery = Discovery(client)
        self._owners: Remembered[tuple[str, OwnerReference], OwnerRecord | ChainEnd]
        self._owners = Remembered(now_s)
        self._refused: Remembered[tuple[str, str, str], ChainEnd]  # by namespace, group and kind
        self._refused = Remembered(now_s)
        self._queues: Remembered[str, str] = Remembered(now_s)  # by namespace

    async def chain(self, namespace: str, references: Iterable[OwnerReference]) -> OwnerChain:
        owners: list[OwnerRecord] = []
        step = next_owner(tuple(references), ())
        while isinstance(step, OwnerReference):
            found = await self._read(namespace, step)
            if isinstance(found, ChainEnd):
                return OwnerChain(namespace, tuple(owners), found, step)
            owners.append(found)
            step = next_owner(found.owners, [it.reference.uid for it in owners])
        return OwnerChain(namespace, tuple(owners), step)

    def forget(self, namespace: str, owners: Iterable[OwnerReference]) -> None:
        """Read these owners again next time: they may be gone."""
        for owner in owners:
            self._owners.drop((namespace, owner))

    async def namespace_queue(self, namespace: str) -> str:
        """Return the queue that a namespace names by its label, or ""."""
        known = self._queues.get(namespace)
        if known is not None:
            return known
        resource = NAMESPACES.with_struct(PartialObject)
        try:
            found = await self._client.get(resource, Key("", namespace), only_metadata=True)
        except ApiError as error:
            _raise_if_it_may_pass(error)
            return self._queues.put(namespace, "", _NEGATIVE_S)
        return self._queues.put(namespace, found.metadata.labels.get(QUEUE, ""), _KNOWN_S)

    async def _read(self, namespace: str, owner: OwnerReference) -> OwnerRecord | ChainEnd:
        kind = namespace, owner.api_version.rpartition("/")[0], owner.kind
        known = (
            self._known(namespace, owner)
            or self._refused.get(kind)
            or self._owners.get((namespace, owner))
        )
        if known is not None:
            return known
        try:
            found = await self._get(namespace, owner)
        except NotFound:
            found = ChainEnd.MISSING
        except ApiError as error:
            _raise_if_it_may_pass(error)
            return self._refused.put(kind, ChainEnd.FORBIDDEN, _NEGATIVE_S)
        for_s = _NEGATIVE_S if isinstance(found, ChainEnd) else _KNOWN_S
        return self._owners.put((namespace, owner), found, for_s)

    async def _get(self, namespace: str, owner: OwnerReference) -> OwnerRecord | ChainEnd:
        resource = await self._resource(owner)
        if resource is None:
            return ChainEnd.MISSING
        if not resource.namespaced:
            return ChainEnd.CLUSTER
        if owner.name in {"", ".", ".."}:  # no object has such a name
            return ChainEnd.MISSING
        key = Key(namespace, owner.name)
        if resource == STATEFUL_SETS:
            stateful_set = await self._client.get(STATEFUL_SETS, key)
            is_ordered = _creates_in_order(stateful_set)
            record = owner_record(owner, stateful_set.metadata, is_ordered=is_ordered)
        else:
            brief = resource.with_struct(PartialObject)
            found = await self._client.get(brief, key, only_metadata=True)
            record = owner_record(owner, found.metadata)
        return record or ChainEnd.MISSING

    async def _resource(self, owner: OwnerReference) -> Resource[Any] | None:
        group = owner.api_version.rpartition("/")[0]
        known = _RESOURCES.get((group, owner.kind))
        return known or await self._discovery.find_kind(group, owner.kind)


def _creates_in_order(stateful_set: StatefulSet) -> bool:
    return stateful_set.spec.pod_management_policy != "Parallel"


def _raise_if_it_may_pass(error: ApiError) -> None:
    if is_retryable(error) or isinstance(error, Unauthorized):
        raise error
