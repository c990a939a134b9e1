"""The Kubernetes client: requests to the API server, their retries, and how to open a client.

Retries happen here and nowhere else, by these rules:

1. After a 429 the client waits and sends again, unless the retry policy says otherwise.
2. A request that never reached the API server is sent again.
3. After any other failure a request is sent again only if it is repeatable.
4. After a 401 the credentials are read again, once; then the process has to exit.
5. All retries stay within the retry policy of the client. The last error is raised.
6. A response that cannot be decoded is `Garbled`, and the request is not repeated: it was executed.

`process_client` opens a client for many tasks, `command_client` one that starts fast, for the few
requests of a command. `bind` (a Binding) and `review_access` (a SubjectAccessReview) create objects
that the API server does not store. `Discovery` finds the kinds that are served.
"""

import dataclasses
import os
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from trainer_kai.api.decode import Page, decode, decode_page
from trainer_kai.api.meta import Key, Object, PartialObject
from trainer_kai.api.names import AUTHORIZATION
from trainer_kai.api.resources import PODS, Resource
from trainer_kai.kube.auth.kubeconfig import find_rest_config
from trainer_kai.kube.auth.rest_config import RestConfig
from trainer_kai.kube.rest import request as build
from trainer_kai.kube.rest.command_transport import CommandTransport
from trainer_kai.kube.rest.request import (
    NO_OPTIONS,
    Body,
    DeleteOptions,
    Patch,
    PatchKind,
    Request,
    WriteOptions,
    object_path,
    post,
)
from trainer_kai.kube.rest.response import (
    ApiError,
    Throttled,
    TooLarge,
    Unauthorized,
    Unavailable,
    body_or_error,
    garbled_if_unreadable,
    is_retryable,
)
from trainer_kai.kube.rest.transport import Transport
from trainer_kai.kube.workqueue import Backoff
from trainer_kai.service.clock import Clock, SystemClock

if TYPE_CHECKING:
    from trainer_kai.kube.leader.lease import Fence


S = TypeVar("S")
T = TypeVar("T", bound=Object)

ANY_UID: Final = DeleteOptions()

_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 5.0
_PAGE: Final = 500
ACCESS_REVIEWS: Final = f"/apis/{AUTHORIZATION}/v1/subjectaccessreviews"


class RetryPolicy(msgspec.Struct, frozen=True):
    """The time limits for one response, and for all retries of a request."""

    timeout_s: float = 30.0
    total_s: float = 30.0
    waits_when_throttled: bool = True  # False: the caller handles a 429


DEFAULT_RETRY_POLICY: Final = RetryPolicy()
_INTERACTIVE: Final = RetryPolicy(total_s=5.0)  # a user waits for the answer


class RequestObserver(Protocol):
    def answered(self, request: Request, status: int, seconds: float) -> None:
        """Count a response; status 0 means that no response arrived."""
        ...

    def repeated(self, request: Request) -> None: ...


class NoRequestObserver:
    def answered(self, request: Request, status: int, seconds: float) -> None: ...

    def repeated(self, request: Request) -> None: ...


class Client:
    """A client of one API server, shared by all tasks of a process."""

    def __init__(
        self,
        rest_config: RestConfig,
        transport: Transport,
        clock: Clock,
        observer: RequestObserver,
        *,
        retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY,
    ) -> None:
        self.rest_config = rest_config
        self.clock = clock
        self._transport = transport
        self._observer = observer
        self._retry_policy = retry_policy

    async def close(self) -> None:
        await self._transport.close()

    def with_fence(self, fence: "Fence") -> "Client":
        """Return this client with a leader's fence before each write; closing it does nothing."""
        from trainer_kai.kube.leader.lease import FencedTransport  # noqa: PLC0415 - no command leads

        fenced = FencedTransport(self._transport, fence, self.clock)
        return self._copy(fenced, self._retry_policy)

    def with_retry_policy(self, retry_policy: RetryPolicy) -> "Client":
        """Return this client with another retry policy; only one of both has to be closed."""
        return self._copy(self._transport, retry_policy)

    def _copy(self, transport: Transport, retry_policy: RetryPolicy) -> "Client":
        return Client(
            self.rest_config, transport, self.clock, self._observer, retry_policy=retry_policy
        )

    # Reading

    async def get(self, resource: Resource[T], key: Key, *, only_metadata: bool = False) -> T:
        """Get one object; with a resource of `PartialObject` only its metadata."""
        request = build.get(resource, key, only_metadata=only_metadata)
        return await self.call(resource.struct, request)

    async def pages(
        self, target: build.ListTarget[T], *, limit: int = _PAGE
    ) -> AsyncIterator[Page[T]]:
        """Read a list page by page, all pages as of the moment of the first one."""
        token = ""
        while True:
            page = await self.page(target, limit, token)
            yield page
            token = page.metadata.continue_token
            if not token:
                return

    async def page(self, target: build.ListTarget[T], limit: int, token: str = "") -> Page[T]:
        """Read one page of a list, with fewer objects if so many are too large."""
        request = build.list_page(target, limit, token)
        try:
            data = await self.send(request)
        except TooLarge:
            if limit == 1:
                raise
            return await self.page(target, max(limit // 10, 1), token)
        with garbled_if_unreadable(request):
            return decode_page(target.resource.struct, data)

    async def list(self, target: build.ListTarget[T]) -> list[T]:
        """Read a list that is known to be short as a whole."""
        return [item async for page in self.pages(target) for item in page.items]

    # Writing

    async def create(
        self, resource: Resource[T], namespace: str, body: Body, options: WriteOptions = NO_OPTIONS
    ) -> T:
        return await self.call(resource.struct, build.create(resource, namespace, body, options))

    async def replace(
        self, resource: Resource[T], key: Key, body: Body, options: WriteOptions = NO_OPTIONS
    ) -> T:
        """Replace an object; `Conflict` means that it was changed since it was read."""
        return await self.call(resource.struct, build.replace(resource, key, body, options))

    async def merge_patch(
        self, resource: Resource[T], key: Key, fields: Body, options: WriteOptions = NO_OPTIONS
    ) -> T:
        """Set some fields of an object; null removes a field, a list replaces a list."""
        return await self._patch(resource, key, Patch(PatchKind.MERGE, fields), options)

    async def json_patch(
        self,
        resource: Resource[T],
        key: Key,
        operations: Sequence[Body],
        options: WriteOptions = NO_OPTIONS,
    ) -> T:
        """Change an object by JSON Patch operations, all or none; `test` makes it conditional."""
        return await self._patch(resource, key, Patch(PatchKind.JSON, operations), options)

    async def apply(
        self, resource: Resource[T], key: Key, fields: Body, options: WriteOptions
    ) -> T:
        """Apply the fields that we own; fields that are missing now are given up (or removed)."""
        if not options.field_manager:
            message = "server-side apply needs a field manager: WriteOptions(field_manager=…)"
            raise ValueError(message)
        named = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            **fields,
            "metadata": {**fields.get("metadata", {}), "name": key.name},
        }
        return await self._patch(resource, key, Patch(PatchKind.APPLY, named), options)

    async def delete(
        self, resource: Resource[Any], key: Key, options: DeleteOptions = ANY_UID
    ) -> None:
        """Delete an object, if it still matches the preconditions."""
        await self.send(build.delete(resource, key, options))

    async def _patch(
        self, resource: Resource[T], key: Key, change: Patch, options: WriteOptions
    ) -> T:
        return await self.call(resource.struct, build.patch(resource, key, change, options))

    # Sending

    async def call(self, struct: type[S], request: Request) -> S:
        data = await self.send(request)
        with garbled_if_unreadable(request):
            return decode(struct, data)

    async def send(self, request: Request, *, retry_policy: RetryPolicy | None = None) -> bytes:
        retry_policy = retry_policy or self._retry_policy
        until_s = self.clock.monotonic_s() + retry_policy.total_s
        backoff = Backoff(_FIRST_WAIT_S, _LONGEST_WAIT_S, random.random)
        renewed = False
        while True:
            try:
                return await self._send_once(request, retry_policy.timeout_s)
            except Unauthorized as error:
                if renewed or not await self.rest_config.credentials.renew():
                    raise self._with_origin(error) from error
                renewed = True
            except ApiError as error:
                if not _may_repeat(request, error, retry_policy):
                    raise
                wait_s = backoff.next_s(error.retry_after_s)
                if self.clock.monotonic_s() + wait_s > until_s:
                    raise
                await self.clock.sleep(wait_s)
                self._observer.repeated(request)

    @asynccontextmanager
    async def stream(
        self, request: Request, silence_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Send a request with a streamed response; it is retried only after a 401."""
        async with AsyncExitStack() as stack:
            yield await self._open_stream(stack, request, silence_s)

    async def _open_stream(
        self, stack: AsyncExitStack, request: Request, silence_s: float
    ) -> AsyncIterator[bytes]:
        renewed = False
        while True:
            opening = self._transport.stream(request, silence_s)
            try:
                return await stack.enter_async_context(opening)
            except Unauthorized as error:
                if renewed or not await self.rest_config.credentials.renew():
                    raise self._with_origin(error) from error
                renewed = True

    def _with_origin(self, error: Unauthorized) -> Unauthorized:
        """Add to a 401 which credentials were not accepted."""
        details = error.details
        message = f"{details.message} to {self.rest_config.origin}"
        return Unauthorized(details._replace(message=message))

    async def _send_once(self, request: Request, timeout_s: float) -> bytes:
        began_s = self.clock.monotonic_s()
        status = 0
        try:
            response = await self._transport.send(request, timeout_s)
            status = response.status
        finally:
            self._observer.answered(request, status, self.clock.monotonic_s() - began_s)
        return body_or_error(request, response)


def _may_repeat(request: Request, error: ApiError, retry_policy: RetryPolicy) -> bool:
    if isinstance(error, Throttled):
        return retry_policy.waits_when_throttled
    if isinstance(error, Unavailable) and not error.was_sent:
        return True
    return is_retryable(error) and request.repeatable


@asynccontextmanager
async def process_client(
    rest_config: RestConfig, clock: Clock, observer: RequestObserver | None = None
) -> AsyncIterator[Client]:
    transport = _pooled_transport(rest_config)
    client = Client(rest_config, transport, clock, observer or NoRequestObserver())
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def command_client(
    *,
    kubeconfig: str = "",
    context: str = "",
    user: str = "",
    timeout_s: float = _INTERACTIVE.timeout_s,
) -> AsyncIterator[Client]:
    """Open the client of one command; requests are sent as *user*, if one is named."""
    clock = SystemClock()
    rest_config = await find_rest_config(os.environ, clock, kubeconfig=kubeconfig, context=context)
    rest_config = dataclasses.replace(rest_config, impersonated=user)
    needs_pooled = rest_config.proxy or rest_config.trust.server_name
    transport = _pooled_transport(rest_config) if needs_pooled else CommandTransport(rest_config)
    policy = msgspec.structs.replace(_INTERACTIVE, timeout_s=timeout_s)
    client = Client(rest_config, transport, clock, NoRequestObserver(), retry_policy=policy)
    try:
        yield client
    finally:
        await client.close()


def _pooled_transport(rest_config: RestConfig) -> Transport:
    from trainer_kai.kube.rest.pooled_transport import PooledTransport  # noqa: PLC0415 - it imports aiohttp

    return PooledTransport(rest_config)


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """A SubjectAccessReview for a user, groups, or both; with a namespace RoleBindings count."""

    verb: str
    group: str
    resource: str
    name: str = ""
    namespace: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    # other attributes of the user that an authorizer may use
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    subresource: str = ""


class AccessDecision(msgspec.Struct, frozen=True):
    allowed: bool = False
    reason: str = ""


class AccessReviewResponse(msgspec.Struct):
    status: AccessDecision


async def bind(
    client: Client,
    pod: Key,
    node: str,
    *,
    uid: str,
    version: str = "",
    annotations: Mapping[str, str] | None = None,
) -> None:
    """Bind exactly this pod, and no later one with its name, to a node; this is final.

    With a *version* (`metadata.resourceVersion`) the pod is bound only in that version, else the
    answer is 409. The annotations are written onto the pod in the same step. The response is a
    Status, which is not read: 201 is all that matters. To get a 429 instead of waiting, use
    `client.with_retry_policy(…)`.
    """
    name = {"name": pod.name, "namespace": pod.namespace, "uid": uid}
    if version:
        name["resourceVersion"] = version
    metadata = {**name, "annotations": annotations or {}}
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    await client.send(post(object_path(PODS, pod, "binding"), body))


async def review_access(client: Client, access_request: AccessRequest) -> AccessDecision:
    """Create an access review; it changes nothing, so it is repeatable."""
    attributes = {
        "verb": access_request.verb,
        "group": access_request.group,
        "resource": access_request.resource,
        "name": access_request.name,
        "namespace": access_request.namespace,
    }
    if access_request.subresource:
        attributes["subresource"] = access_request.subresource
    spec: dict[str, object] = {
        "resourceAttributes": attributes,
        "user": access_request.user,
        "groups": list(access_request.groups),
    }
    if access_request.uid:
        spec["uid"] = access_request.uid
    if access_request.extra:
        spec["extra"] = {name: list(values) for name, values in access_request.extra}
    body = {"apiVersion": f"{AUTHORIZATION}/v1", "kind": "SubjectAccessReview", "spec": spec}
    review = await client.call(AccessReviewResponse, post(ACCESS_REVIEWS, body, repeatable=True))
    return review.status


_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_REFRESH_AGAIN_S: Final = 5.0


class _Kind(msgspec.Struct):
    kind: str = ""


class _Resource(msgspec.Struct, rename="camel"):
    resource: str
    scope: str = ""
    singular_resource: str = ""
    short_names: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    response_kind: _Kind = msgspec.field(default_factory=_Kind)


class _Version(msgspec.Struct):
    version: str
    resources: tuple[_Resource, ...] = ()


class _Meta(msgspec.Struct):
    name: str = ""


class _Group(msgspec.Struct):
    metadata: _Meta
    versions: tuple[_Version, ...] = ()


class _Groups(msgspec.Struct):
    items: tuple[_Group, ...] = ()


class Discovery:
    """The kinds that an API server serves, read once and cached.

    One response has all groups ("aggregated discovery"). It is read again when a kind is missing,
    but at most every few seconds: a custom resource may have been installed since.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._served: list[tuple[Resource[Any], _Resource]] = []
        self._refreshed_s = float("-inf")

    async def find(self, name: str) -> Resource[PartialObject] | None:
        """Return the kind with this name, in the version that the API server prefers.

        The name is a plural, a singular, a kind or a short name, and may have the group behind a
        dot: `pods`, `podgroups.scheduling.run.ai`, `pg`.
        """
        resource = self._find(name.lower())
        if resource is None:
            await self._refresh_if_due()
            resource = self._find(name.lower())
        return resource

    async def find_kind(self, group: str, kind: str) -> Resource[PartialObject] | None:
        """Return the kind of exactly this group, in the version that the API server prefers."""
        resource = self._find_kind(group, kind)
        if resource is None:
            await self._refresh_if_due()
            resource = self._find_kind(group, kind)
        return resource

    async def serves(self, resource: Resource[Any]) -> bool:
        """Say whether exactly this group, version and plural is served."""
        if not self._serves(resource):
            await self._refresh_if_due()
        return self._serves(resource)

    async def refresh(self) -> None:
        served: list[tuple[Resource[Any], _Resource]] = []
        for root in ("/api", "/apis"):
            request = Request("GET", root, accept=_AGGREGATED, repeatable=True)
            served += _resources(await self._client.call(_Groups, request))
        self._served = served
        self._refreshed_s = self._client.clock.monotonic_s()

    async def _refresh_if_due(self) -> None:
        if self._client.clock.monotonic_s() - self._refreshed_s > _REFRESH_AGAIN_S:
            await self.refresh()

    def _find(self, name: str) -> Resource[PartialObject] | None:
        plain, _, group = name.partition(".")
        for resource, api_resource in self._served:
            names = {resource.plural, api_resource.singular_resource, resource.kind.lower()}
            names.update(api_resource.short_names)
            if plain and plain in names and group in ("", resource.group):
                return resource
        return None

    def _find_kind(self, group: str, kind: str) -> Resource[PartialObject] | None:
        found = (it for it, _ in self._served if (it.group, it.kind) == (group, kind))
        return next(found, None)

    def _serves(self, resource: Resource[Any]) -> bool:
        same = (resource.group, resource.version, resource.plural)
        return any((r.group, r.version, r.plural) == same for r, _ in self._served)


def _resources(groups: _Groups) -> Iterator[tuple[Resource[PartialObject], _Resource]]:
    for group in groups.items:
        for version in group.versions:
            for api_resource in version.resources:
                resource = Resource(
                    group.metadata.name,
                    version.version,
                    api_resource.resource,
                    api_resource.response_kind.kind,
                    api_resource.scope == "Namespaced",
                    PartialObject,
                )
                yield resource, api_resource
