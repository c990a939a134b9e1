"""Routes a review to the handler of its kind, counts and times it, and reports internal errors.

After an internal error the object is allowed as it is, except a new object that must not pass
unchecked: that is denied with 503. Trainer retries its JobSet; a user retries the TrainJob.

Pods, and workloads that are only validated, need no lookup and are answered here; TrainJobs, Jobs
with JobSets, and queues have modules of their own.
"""

import secrets
import string
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

from structlog.typing import FilteringBoundLogger

from trainer_kai.errors import FieldError
from trainer_kai.policy.podgroups.manifests import GroupingMode
from trainer_kai.service.clock import Clock
from trainer_kai.service.metrics import Metrics
from webhook.admission.review import (
    SERVICE_UNAVAILABLE,
    AdmissionDenial,
    AdmissionRequest,
    AdmissionResponse,
    Malformed,
    all_denied,
    encode_response,
    read_review,
)
from webhook.cache.admission_cache import AdmissionCache
from webhook.reviews.answer_jobs import workload_context
from webhook.reviews.answer_trainjob import AdmissionPolicy
from webhook.rules.pod_devices import read_new_pod, restrict_devices
from webhook.rules.pod_gpu_share import ShareRules, prepare_share, share_container
from webhook.rules.pod_podgroup import mutate_pod
from webhook.rules.roles_validate import roles_kind_of, validate_roles
from webhook.rules.workload_validate import validate_workload

Decide: TypeAlias = Callable[[AdmissionRequest], Awaitable[AdmissionResponse]]
_INTERNAL_ERROR: Final = "trainer-kai had an internal error"
_INTERNAL_REMEDY: Final = "The log of the webhook shows the error"
_LETTERS: Final = string.ascii_lowercase + string.digits
_RANDOM: Final = 7  # characters of the name of a ConfigMap


class HttpReply(NamedTuple):
    status: int
    body: bytes
    content_type: str = "application/json"


class Route(NamedTuple):
    kind: str
    decide: Decide
    fails_closed: Callable[[], bool] = lambda: False  # deny creations after an internal error


class ReviewRouter:
    def __init__(
        self,
        mode: GroupingMode,
        clock: Clock,
        metrics: Metrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._mode: Final = mode
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._routes: Final[dict[str, Route]] = {
            "/mutate/pod": Route("pod", self._review_pod),
        }

    def add_route(self, path: str, route: Route) -> None:
        self._routes[path] = route

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self._routes)

    def has_route(self, path: str) -> bool:
        return path in self._routes

    async def answer(self, path: str, body: bytes) -> HttpReply:
        route = self._routes[path]
        began_s = self._clock.monotonic_s()
        reply, outcome = await self._answer(route, body)
        self._metrics.admission_reviews.labels(route.kind, outcome).inc()
        spent_s = self._clock.monotonic_s() - began_s
        self._metrics.admission_review_seconds.labels(route.kind).observe(spent_s)
        return reply

    async def _answer(self, route: Route, body: bytes) -> tuple[HttpReply, str]:
        request, kind = read_review(body), route.kind
        if isinstance(request, Malformed):
            self._log.warning("review malformed", kind=kind, fault=request.message)
            return HttpReply(400, request.message.encode(), "text/plain"), "malformed"
        try:
            answer = await route.decide(request)
            reply = HttpReply(200, encode_response(request.uid, answer))
        except Exception as error:  # noqa: BLE001 - every review gets a response
            self._log.error("review failed", kind=kind, uid=request.uid, exc_info=error)
            body = encode_response(request.uid, _internal_error(route, request))
            return HttpReply(200, body), "failed"
        if answer.denial is not None:
            fields = {"code": answer.denial.code, "reason": answer.denial.message}
            self._log.warning("object denied", kind=kind, namespace=request.namespace, **fields)
        return reply, answer.outcome

    async def _review_pod(self, request: AdmissionRequest) -> AdmissionResponse:
        return mutate_pod(request, self._mode)


def _internal_error(route: Route, request: AdmissionRequest) -> AdmissionResponse:
    kind = request.kind.kind
    handled = "changed" if kind in {"JobSet", "Job", "Pod"} else "validated"
    message = f"{_INTERNAL_ERROR}: this {kind} was not {handled}. {_INTERNAL_REMEDY}"
    if route.fails_closed() and request.operation == "CREATE":
        return AdmissionResponse(denial=AdmissionDenial(SERVICE_UNAVAILABLE, message))
    return AdmissionResponse(warnings=(message,))


class WorkloadHandler:
    def __init__(self, cache: AdmissionCache, policy: AdmissionPolicy) -> None:
        self._cache = cache
        self._policy = policy

    async def answer(self, request: AdmissionRequest) -> AdmissionResponse:
        context = workload_context(self._cache, self._policy)
        rules, kind = self._policy.rules, roles_kind_of(request.kind)
        if kind is not None:
            return validate_roles(request, kind, context, rules).response()
        return validate_workload(request, context, rules).response()


class GpuAccessRules(NamedTuple):
    """The settings that decide which GPUs the containers of a pod see."""

    scheduler_name: str
    shares: ShareRules
    restricts_devices: bool = False


def new_random_text() -> str:
    """Return a text that no other pod has, as a part of the names of its ConfigMaps."""
    return "".join(secrets.choice(_LETTERS) for _ in range(_RANDOM))


class NewPodHandler:
    def __init__(
        self, rules: GpuAccessRules, new_random: Callable[[], str] = new_random_text
    ) -> None:
        self._rules = rules
        self._new_random = new_random

    async def answer(self, request: AdmissionRequest) -> AdmissionResponse:
        pod = read_new_pod(request, self._rules.scheduler_name)
        if isinstance(pod, AdmissionResponse):
            return pod
        faults = []
        shares = self._rules.shares
        sharing = share_container(pod) if shares.is_enabled or shares.is_by_kai else None
        if isinstance(sharing, FieldError):
            faults += [sharing] if shares.is_enabled else []
            sharing = None
        elif sharing is not None and shares.is_enabled:
            prepare_share(pod, sharing, shares, self._new_random)
        if self._rules.restricts_devices:
            faults += restrict_devices(pod, sharing)
        if faults:
            return all_denied(faults).response()
        return AdmissionResponse(pod.patch.operations)
