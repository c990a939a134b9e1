"""Access to closed queues: which SubjectAccessReviews are sent, and which answers are cached.

A queue is the choice of a user if the TrainJob, its patches or a runtime of its namespace names it;
then the user needs the verb `use` on the queue, in this namespace. Cluster runtimes, namespaces and
settings are written by administrators. For every closed queue the namespace needs the verb as well:
the scheduler checks the namespace again.

Which queue a TrainJob will use, before its JobSet exists, and which field names the queue.

The precedence is that of `trainer_kai.policy`. Paths are fields of the TrainJob, since its author
can change no other object.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from trainer_kai.api.jobset import JobSet
from trainer_kai.api.names import QUEUE
from trainer_kai.errors import FieldError
from trainer_kai.policy.queueing.queue_access import (
    EffectiveQueueAccess,
    QueueChoice,
    QueueSource,
    RequestedQueues,
    closed_reason,
    grant_command,
    resolve_queue,
    service_accounts_group,
)
from webhook.cache.cluster import QueueTree
from webhook.cache.runtimes import RuntimeSummary
from webhook.rules.jobset_restore import (
    SlimRuntimePatch,
    expected_jobset,
    jobset_queue_path,
    patched_pod_queues,
    pod_queue_path,
)

VERB: Final = "use"
_ALLOWED_TTL_S: Final = 60.0
_DENIED_TTL_S: Final = 5.0  # a user retries soon after access was granted
_MAX_ENTRIES: Final = 4096


class UserInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The user of a request, as the API server sends it."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class QueueAccessRequest(NamedTuple):
    """A request of a user or a namespace to use a queue; equal requests have the same answer."""

    user: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]
    namespace: str
    queue: str

    @classmethod
    def for_user(cls, user_info: UserInfo, namespace: str, queue: str) -> "QueueAccessRequest":
        """Return the request of a user."""
        extra = tuple(sorted(user_info.extra.items()))
        return cls(user_info.username, user_info.uid, user_info.groups, extra, namespace, queue)

    @classmethod
    def for_namespace(cls, namespace: str, queue: str) -> "QueueAccessRequest":
        """Return the request of a namespace, as the group of its service accounts."""
        return cls("", "", (service_accounts_group(namespace),), (), namespace, queue)

    @property
    def subject(self) -> str:
        """Return the user or the namespace as it is named in messages."""
        return f"user {self.user!r}" if self.user else f"namespace {self.namespace!r}"


class AccessCache:
    """Recent answers, limited in number; a denial is cached for a shorter time."""

    def __init__(self) -> None:
        self._entries: OrderedDict[bytes, tuple[bool, float]] = OrderedDict()

    def get(self, access_request: QueueAccessRequest, now_s: float) -> bool | None:
        """Return an answer that has not expired."""
        is_allowed, until_s = self._entries.get(_digest(access_request), (False, 0.0))
        return is_allowed if now_s < until_s else None

    def put(self, access_request: QueueAccessRequest, now_s: float, *, is_allowed: bool) -> None:
        """Put an answer; above the limit the oldest one is dropped."""
        key = _digest(access_request)
        self._entries.pop(key, None)
        self._entries[key] = (is_allowed, now_s + (_ALLOWED_TTL_S if is_allowed else _DENIED_TTL_S))
        if len(self._entries) > _MAX_ENTRIES:
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)


def forbidden_fault(
    denied: Sequence[QueueAccessRequest], access: EffectiveQueueAccess, path: str
) -> FieldError:
    """Say that a user or a namespace may not use a closed queue, and what grants access."""
    names, first = " and ".join(it.subject for it in denied), denied[0]
    user = next((it.user for it in denied if it.user), "")
    grant = grant_command(first.queue, first.namespace, user=user)
    message = (
        f"{names} may not use queue {first.queue!r}: the queue is closed "
        f"({closed_reason(access)}). "
        f"Name another queue, or ask an administrator to run: {grant}"
    )
    return FieldError(path, message)


def _digest(access_request: QueueAccessRequest) -> bytes:
    """Return a short key for a request: a user may have many groups."""
    return hashlib.sha256(msgspec.json.encode(access_request)).digest()


QUEUE_LABEL_PATH: Final = f"metadata.labels[{QUEUE}]"
RUNTIME_REF_PATH: Final = "spec.runtimeRef"
_NOT_NAMED_BY_JOB: Final = frozenset({QueueSource.NAMESPACE, QueueSource.DEFAULT})


class RequestedQueue(NamedTuple):
    """A queue, and the field of the TrainJob that names it, or that names its runtime."""

    queue: str
    path: str  # "" where namespace or settings name it
    is_user_choice: bool = False  # named by a user, in an object of the namespace


class TrainJobQueues(NamedTuple):
    """The JobSet that will be built, the queue that each place names, and the one that wins."""

    runtime: RuntimeSummary
    jobset: JobSet
    sources: RequestedQueues
    choice: QueueChoice
    path: str  # the field of the TrainJob that names the queue, or could name one
    pod_queues: tuple[RequestedQueue, ...] = ()  # other queues that pod templates name

    @property
    def is_named(self) -> bool:
        """Say whether the TrainJob or its runtime names the queue."""
        return self.choice.source not in _NOT_NAMED_BY_JOB

    @property
    def queues(self) -> tuple[RequestedQueue, ...]:
        """Return every queue that the pods may use."""
        return RequestedQueue(
            self.choice.queue, self.path if self.is_named else ""
        ), *self.pod_queues


def resolve_trainjob_queues(
    labels: Mapping[str, str],
    patches: Sequence[SlimRuntimePatch],
    runtime: RuntimeSummary | None,
    namespace: Mapping[str, str],
    default: str,
) -> TrainJobQueues:
    """Return the queue; if the runtime is unknown, only the TrainJob and its patches count."""
    jobset = expected_jobset(runtime or RuntimeSummary(), patches)
    pods = patched_pod_queues(patches) if runtime is None else _queues_of_templates(jobset)
    sources = RequestedQueues(
        trainjob={QUEUE: labels[QUEUE]} if QUEUE in labels else {},
        runtime_queue=runtime.queue if runtime else "",
        jobset=jobset.metadata.labels,
        templates=tuple({QUEUE: queue} for queue in pods.values()),
        namespace=namespace,
    )
    choice = resolve_queue(sources, default)
    path = _choice_path(choice, pods, patches)
    pod_queues = tuple(RequestedQueue(it, _pods_path(it, pods, patches)) for it in choice.others)
    return TrainJobQueues(runtime or RuntimeSummary(), jobset, sources, choice, path, pod_queues)


def unusable_queue_message(choice: QueueChoice, queues: QueueTree) -> str | None:
    """Say why the queue of a TrainJob cannot hold workloads; None if it can."""
    reason = queues.unusable_reason(choice.queue)
    if reason is None:
        return None
    given_by = "" if choice.source is QueueSource.TRAINJOB else f" (from {choice.source.value})"
    return f"queue {choice.queue!r}{given_by} {reason}"


def _queues_of_templates(jobset: JobSet) -> dict[str, str]:
    """Return the queues that pod templates name, by replicatedJob."""
    jobs = jobset.spec.replicated_jobs
    labels = {it.name: it.template.spec.template.metadata.labels for it in jobs}
    return {name: value[QUEUE] for name, value in labels.items() if QUEUE in value}


def _choice_path(
    choice: QueueChoice, pods: Mapping[str, str], patches: Sequence[SlimRuntimePatch]
) -> str:
    match choice.source:
        case QueueSource.RUNTIME:
            return RUNTIME_REF_PATH
        case QueueSource.JOBSET:
            return jobset_queue_path(patches) or RUNTIME_REF_PATH
        case QueueSource.POD_TEMPLATE:
            return _pods_path(choice.queue, pods, patches)
        case _:
            return QUEUE_LABEL_PATH


def _pods_path(queue: str, pods: Mapping[str, str], patches: Sequence[SlimRuntimePatch]) -> str:
    first = next(name for name, value in pods.items() if value == queue)
    return pod_queue_path(patches, first) or RUNTIME_REF_PATH
