"""An API server in memory for the scheduler: it stands in for the wire, all above it is real.

It knows as much as a scheduler asks of it: pods are bound once, a write with another uid or version
than the object's is a conflict, annotations have a size limit, what a field manager applied and
leaves out later is taken away, unless it is another value by then, and of each change there is
news. A test may keep the news back, refuse what is asked, and see everything that was written, in
order.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from scheduler.core.model.rejections import NO_EVENT, ClusterEvent
from scheduler.shell.cycle import Cycle
from scheduler.state.cache.cache import ClusterCache
from tests.support.clock import VirtualClock
from tests.support.state.objects import NOW
from trainer_kai.api.decode import decode
from trainer_kai.api.meta import Key
from trainer_kai.api.names import JOBSET_UID, RESERVATION_APP
from trainer_kai.api.resources import (
    CONFIG_MAPS,
    DEVICE_KINDS,
    JOBS,
    JOBSETS,
    LEADER_WORKER_SETS,
    NAMESPACES,
    NODES,
    POD_TEMPLATES,
    PODGROUPS,
    PODS,
    PRIORITY_CLASSES,
    PROVISIONING_REQUESTS,
    PVCS,
    PYTORCH_JOBS,
    QUEUES,
    RAY_CLUSTERS,
    STORAGE_CLASSES,
    TRAINJOBS,
    Resource,
)
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.rest.request import PatchKind, Request
from trainer_kai.kube.rest.response import ApiResponse

Fields: TypeAlias = dict[str, Any]
RefusedRequest: TypeAlias = int | Exception

_KINDS: Final[dict[str, Resource[Any]]] = {
    resource.kind: resource
    for resource in (
        *(PODS, PODGROUPS, NODES, QUEUES, PVCS, STORAGE_CLASSES, NAMESPACES, TRAINJOBS, JOBSETS),
        *(JOBS, PRIORITY_CLASSES, CONFIG_MAPS, PYTORCH_JOBS, LEADER_WORKER_SETS, RAY_CLUSTERS),
        *(PROVISIONING_REQUESTS, POD_TEMPLATES),
        *DEVICE_KINDS,
    )
}
_ANNOTATIONS: Final = 256 * 1024  # characters that the annotations of an object may have in all


class WrittenObject(NamedTuple):
    """One write that was accepted."""

    what: str  # "bind a to n", "patch podgroups g", "patch pods/status a"
    body: Any


class FakeCluster:
    """A transport, and the objects behind it."""

    def __init__(self) -> None:
        self.clock: Final = VirtualClock(datetime.fromtimestamp(NOW, UTC))
        self.client: Final = Client(
            RestConfig("https://h", StaticToken(""), origin="the test"),
            self,
            self.clock,
            NoRequestObserver(),
        )
        self.writes: Final[list[WrittenObject]] = []
        self.events: Final[list[Fields]] = []
        # Of the kind that has a watch of its own, with None for an object that is gone.
        self.on_provisioning_request: Callable[[str, Fields | None], None] = lambda *_: None
        self.refuse_with: Callable[[str], RefusedRequest | None] = lambda _: None
        self.delay_s: Callable[[str], float] = lambda _: 0.0  # before it does what is asked
        self.holds_back_events = False
        self.may_use: Final[dict[str, bool]] = {}  # by queue; not listed is forbidden
        self.access_reviews: Final[list[Fields]] = []  # the users and queues that were asked for
        self.keeps_deleted_pods = False  # a pod that is deleted is going, and stays
        self._objects: Final[dict[tuple[str, str], Fields]] = {}
        self._pending_events: Final[list[tuple[str, str, Fields | None]]] = []
        self._listener: tuple[ClusterCache, Cycle | None] | None = None
        self._version = 0
        self._applied: Final[dict[tuple[str, str, str], Fields]] = {}  # by kind, name and manager

    # What becomes of the objects

    def put(self, *objects: Fields) -> None:
        """Make objects, or change them."""
        for fields in objects:
            self._store(fields["kind"], {**fields, "metadata": {**fields["metadata"]}})

    def delete(self, kind: str, name: str) -> None:
        """Delete an object."""
        del self._objects[kind, name]
        self._emit(kind, name, None)

    def get(self, kind: str, name: str) -> Fields:
        """Return an object."""
        return self._objects[kind, name]

    def has(self, kind: str, name: str) -> bool:
        """Say whether an object is there."""
        return (kind, name) in self._objects

    def names(self, kind: str) -> list[str]:
        """Return the names of all objects of a kind."""
        return [name for of, name in self._objects if of == kind]

    def node_of_pods(self) -> dict[str, str]:
        """Return the nodes of all pods that have one."""
        pods = ((name, it) for (kind, name), it in self._objects.items() if kind == "Pod")
        return {name: it["spec"]["nodeName"] for name, it in pods if it["spec"].get("nodeName")}

    def written(self) -> list[str]:
        """Return what was written, without bodies."""
        return [it.what for it in self.writes]

    def body(self, what: str) -> Fields:
        """Return what was written."""
        found: Fields = next(it.body for it in self.writes if it.what == what)
        return found

    # What receives the changes

    def deliver_to(self, live: ClusterCache, cycle: Cycle | None = None) -> None:
        """Tell everything, and all news from now on."""
        self._listener = live, cycle
        for (kind, name), fields in self._objects.items():
            self._emit(kind, name, fields)
        self.deliver()

    def deliver(self) -> None:
        """Tell the news."""
        assert self._listener is not None
        live, cycle = self._listener
        news, self._pending_events[:] = [*self._pending_events], []
        for kind, name, fields in news:
            event = _put_into_cache(live, kind, name, fields)
            if cycle is not None:
                cycle.wake(event, (fields or {}).get("metadata", {}).get("namespace", ""))

    # The wire

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        """Do what is asked, unless it is to be refused."""
        assert timeout_s > 0
        await asyncio.sleep(0)
        what, kind, name, subgroup = _parse_request(request)
        body = json.loads(request.body or b"{}")
        if subgroup == "binding":
            what = f"bind {name} to {body['target']['name']}"
        if ("dryRun", "All") in request.query or "dryRun" in body:
            what = f"try {what}"
        if delay_s := self.delay_s(what):
            await self.clock.sleep(delay_s)
        refusal = self.refuse_with(what) or self._annotations_too_large(kind, name, body)
        if isinstance(refusal, Exception):
            raise refusal
        if refusal is not None:
            return _error_answer(refusal)
        if request.method == "GET" and not name:
            items = [it for (of, _), it in self._objects.items() if of == kind]
            return _json_answer({"items": items}, 200)
        if request.method == "GET" and kind == "ResourceClaim":
            found = self._objects.get((kind, name))
            return _error_answer(404) if found is None else _json_answer(found, 200)
        if request.content_type == PatchKind.APPLY.value and not what.startswith("try"):
            manager = dict(request.query)["fieldManager"]
            before = self._applied.get((kind, name, manager), {})
            self._applied[kind, name, manager] = body
            body = _with_released_fields(before, body, self._objects.get((kind, name), {}))
        is_new = kind == "ConfigMap" and not self.has(kind, name) and what.startswith("patch")
        if is_new or (kind in ("Pod", "PodTemplate", "ProvisioningRequest") and not name):
            return self._create(kind, body, what)
        return self._carry_out(kind, name, subgroup, body, what)

    def stream(
        self, request: Request, silence_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Follow nothing: news is told by the test."""
        message = f"{request} is followed for {silence_s} s"
        raise NotImplementedError(message)

    async def close(self) -> None:
        """End nothing."""

    def _carry_out(
        self, kind: str, name: str, subgroup: str, body: Fields, what: str
    ) -> ApiResponse:
        if kind == "SubjectAccessReview":
            self.access_reviews.append(body["spec"])
            asked = body["spec"]["resourceAttributes"]["name"]
            return _json_answer({"status": {"allowed": self.may_use.get(asked, False)}}, 201)
        if kind == "Event":
            written = (it for it in self.events if name and it["metadata"]["name"] == name)
            self.events.append(_merged(next(written, {}), body))
            return _json_answer({"metadata": {"name": "e"}}, 201)
        fields = self._objects.get((kind, name))
        if fields is None:
            return _error_answer(404)
        meant = body.get("metadata") or body.get("preconditions") or {}
        if _is_conflict(fields["metadata"], meant):
            return _error_answer(409)
        if subgroup == "binding":
            if fields["spec"].get("nodeName"):
                return _error_answer(409)
            annotations = body["metadata"].get("annotations")
            body = {"spec": {"nodeName": body["target"]["name"]}}
            body |= {"metadata": {"annotations": annotations}} if annotations else {}
        self.writes.append(WrittenObject(what, body))
        if what.startswith("try"):
            return _json_answer(fields, 200)
        if what.startswith("delete") and not self.keeps_deleted_pods:
            self.delete(kind, name)
            return _json_answer(fields, 200)
        if what.startswith("delete"):
            body = {"metadata": _terminating(fields, body)}
        self._store(kind, _merged(fields, body))
        return _json_answer(self._objects[kind, name], 200)

    def _create(self, kind: str, body: Fields, what: str) -> ApiResponse:
        name = body["metadata"]["name"]
        if (kind, name) in self._objects:
            return _json_answer({"code": 409, "reason": "AlreadyExists", "message": "no"}, 409)
        whole = what if what.endswith(name) else f"{what.rstrip()} {name}"
        self.writes.append(WrittenObject(whole, body))
        metadata = {**body["metadata"], "uid": f"{name}-{self._version}"}
        self._store(kind, {"kind": kind, **body, "metadata": metadata})
        return _json_answer(self._objects[kind, name], 201)

    def _annotations_too_large(self, kind: str, name: str, body: Fields) -> int | None:
        """Return how annotations are refused that are too large together."""
        known = _merged(self._objects.get((kind, name), {}), body)
        notes = known.get("metadata", {}).get("annotations") or {}
        size = sum(len(name) + len(text or "") for name, text in notes.items())
        return 422 if size > _ANNOTATIONS else None

    def _store(self, kind: str, fields: Fields) -> None:
        name = fields["metadata"]["name"]
        if fields == self._objects.get((kind, name)):
            return  # nothing is new
        before = self._objects.get((kind, name))
        self._version += 1
        fields["metadata"]["resourceVersion"] = f"{self._version}"
        self._objects[kind, name] = fields
        self._emit(kind, name, fields)
        if kind == "TrainJob" and _is_suspended(before) and not _is_suspended(fields):
            self._resume_jobset(name)

    def _resume_jobset(self, name: str) -> None:
        """Do what Trainer does when a TrainJob is resumed."""
        jobset = self._objects.get(("JobSet", name))
        if jobset is not None and _is_suspended(jobset):
            self.put({**jobset, "kind": "JobSet", "spec": {**jobset["spec"], "suspend": False}})

    def _emit(self, kind: str, name: str, fields: Fields | None) -> None:
        if kind == PROVISIONING_REQUESTS.kind:
            self.on_provisioning_request(name, fields)
        self._pending_events.append((kind, name, fields))
        if self._listener is not None and not self.holds_back_events:
            self.deliver()


def _is_suspended(fields: Fields | None) -> bool:
    return fields is not None and bool(fields.get("spec", {}).get("suspend"))


def _is_conflict(meta: Fields, meant: Fields) -> bool:
    """Say whether an object is not the one, or not of the version, that a write names."""
    names = ("uid", "resourceVersion")
    return any(meant[it] != meta.get(it) for it in names if meant.get(it))


def _terminating(pod: Fields, options: Fields) -> Fields:
    """Return what the API server writes on a pod that is deleted and has to end first."""
    grace_s = pod["spec"].get("terminationGracePeriodSeconds", 30)
    grace_s = min(grace_s, options.get("gracePeriodSeconds", grace_s))
    due = datetime(2026, 1, 5, 8, tzinfo=UTC) + timedelta(seconds=grace_s)
    return {"deletionTimestamp": f"{due:%Y-%m-%dT%H:%M:%SZ}", "deletionGracePeriodSeconds": grace_s}


def _put_into_cache(
    live: ClusterCache, kind: str, name: str, fields: Fields | None
) -> ClusterEvent:
    resource = _KINDS[kind]
    labels = (fields or {}).get("metadata", {}).get("labels", {})
    if resource in (CONFIG_MAPS, PROVISIONING_REQUESTS, POD_TEMPLATES) or (
        resource is JOBS and JOBSET_UID in labels
    ):
        return NO_EVENT  # the scheduler does not watch them
    seen = decode(resource.struct, json.dumps(fields).encode()) if fields else None
    namespace = RESERVATION_APP if name.startswith("gpu-reservation-") else "ns"
    return live.update(resource, Key(namespace if resource.namespaced else "", name), seen)


def _parse_request(request: Request) -> tuple[str, str, str, str]:
    """Return what a request does, in words, and to which object."""
    parts = request.path.split("/")
    plural = next((one for one in reversed(parts) if one in _PLURALS), "")
    at = parts.index(plural)
    name, subgroup = (*parts[at + 1 :], "", "")[:2]
    what = f"{request.method.lower()} {plural}{'/' + subgroup if subgroup else ''} {name}"
    return what, _PLURALS[plural], name, subgroup


_PLURALS: Final = {resource.plural: kind for kind, resource in _KINDS.items()} | {
    "events": "Event",
    "subjectaccessreviews": "SubjectAccessReview",
}


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    found = {**old}
    for name, value in new.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _merged(old.get(name), value)
    return found


def _with_released_fields(before: Any, now: Any, there: Any) -> Any:
    """Return what is applied; null takes away what was applied before, if that is still there."""
    if not isinstance(before, dict):
        return now
    found = {**now}
    for name, value in before.items():
        if isinstance(value, dict):
            found[name] = _with_released_fields(value, now.get(name, {}), there.get(name, {}))
        elif name not in now and there.get(name) == value:
            found[name] = None
    return found


def _json_answer(fields: Fields, status: int) -> ApiResponse:
    return ApiResponse(status, json.dumps(fields).encode())


def _error_answer(status: int) -> ApiResponse:
    return ApiResponse(status, json.dumps({"code": status, "message": "no"}).encode())
