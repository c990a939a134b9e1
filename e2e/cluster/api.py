"""Requests to the API server and nothing cleverer: the tests' own hands, no code of the product."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self

import aiohttp

from e2e.cluster.kubeconfig import ADMIN, Credentials
from e2e.cluster.patience import patience_s, until
from e2e.cluster.resources import BY_KIND, PODS, SERVICE_ACCOUNTS, Obj, Resource
from e2e.cluster.together import together

_CONNECTIONS = 64
_IN_FLIGHT = 32
_TOKEN_S = 30 * 24 * 3600  # as long as the cluster's certificates
_APPLY = "application/apply-patch+yaml"
_NOT_READY = (404, 429, 503)  # unknown; its storage is being set up; not served yet
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_MERGE = "application/merge-patch+json"
_STALE_MESSAGE = "must be created before the TrainJob"  # what Trainer's webhook says of its runtime
_STALE_S = 30.0
_NO_HEADERS: Mapping[str, str] = {}


class ApiError(Exception):
    """The API server refused; `status` is its HTTP status, `reason` its word for it."""

    def __init__(
        self, request: str, status: int, body: str, retry_after_s: int | None = None
    ) -> None:
        self.status = status
        self.retry_after_s = retry_after_s
        try:
            decoded = json.loads(body)
        except ValueError:
            decoded = None
        answer = decoded if isinstance(decoded, dict) else {}
        self.reason = answer.get("reason", "")
        super().__init__(f"{request}: {status} {self.reason}: {answer.get('message') or body}")


async def retry_while_stale(
    attempt: Callable[[], Coroutine[object, object, Obj]], unheard: str
) -> Obj:
    """Try until it is not refused in these words: who refuses hears of what is there by a watch."""
    until = asyncio.get_running_loop().time() + patience_s(_STALE_S)
    while True:
        try:
            return await attempt()
        except ApiError as error:
            if unheard not in str(error) or asyncio.get_running_loop().time() > until:
                raise
            await asyncio.sleep(0.05)


class Api:
    """One user's connection to one API server."""

    def __init__(
        self, url: str, token: str, tls: ssl.SSLContext, headers: Mapping[str, str] = _NO_HEADERS
    ) -> None:
        self.url = url
        self.token = token
        self.tls = tls
        self.rewrite: Callable[[Obj], Obj] = lambda obj: obj  # for the versions of the chain
        connector = aiohttp.TCPConnector(ssl=tls, limit=_CONNECTIONS)
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={"Authorization": f"Bearer {token}", **headers},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=patience_s(10)),
        )

    @classmethod
    def connect(cls, credentials: Credentials) -> Self:
        """Return the administrator's connection."""
        authority = credentials.authority_pem.decode()
        tls = ssl.create_default_context(cadata=authority)
        return cls(credentials.server, credentials.tokens[ADMIN], tls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Any:
        """Send one request and return the answer; raise `ApiError` for a refusal.

        *path* may be a whole URL, to ask another server of the chain.
        """
        url = path if "://" in path else self.url + path
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type, "Accept": accept}
        async with self._session.request(
            method, url, data=data, params=query, headers=headers
        ) as response:
            text = await response.text()
            if response.status >= 400:
                wait = response.headers.get("Retry-After")
                wait_s = None if wait is None else int(wait)
                raise ApiError(f"{method} {path}", response.status, text, wait_s)
            return json.loads(text) if text.startswith("{") else text

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch; what it yields are whole lines of any length."""
        async with self._session.get(self.url + path, params=query) as response:
            if response.status >= 400:
                raise ApiError(f"GET {path}", response.status, await response.text())
            yield _lines(response.content)

    async def discover(self) -> set[tuple[str, str]]:
        """Return the kinds of every group as clients discover them: group and plural."""
        answer = await self.request("GET", "/apis", accept=_DISCOVERY)
        return {
            (group["metadata"]["name"], resource["resource"])
            for group in answer["items"]
            for version in group["versions"]
            for resource in version.get("resources", ())
        }

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Obj:
        """Read one object."""
        found: Obj = await self.request("GET", resource.path(namespace, name))
        return found

    async def until_found(self, path: str) -> None:
        """Wait until a path answers: an object is made, or a kind is served."""
        while True:
            try:
                await self.request("GET", path)
            except ApiError as error:
                if error.status not in _NOT_READY:
                    raise
                await asyncio.sleep(0.05)
            else:
                return

    async def list(
        self, resource: Resource, namespace: str | None = None, **query: str
    ) -> tuple[list[Obj], str]:
        """Read a collection and the version it was read at."""
        answer = await self.request("GET", resource.path(namespace), query=query)
        items = [
            {"apiVersion": resource.api_version, "kind": resource.kind, **item}
            for item in answer["items"]
        ]
        return items, answer["metadata"]["resourceVersion"]

    async def create(self, obj: Obj, **query: str) -> Obj:
        """Create an object where its own kind and namespace say.

        Trainer's webhook hears of a runtime some time after it is there: a TrainJob waits for that.
        """
        path = BY_KIND[obj["kind"]].path(obj["metadata"].get("namespace"))
        body = self.rewrite(obj)
        return await retry_while_stale(
            lambda: self.request("POST", path, body, query=query), _STALE_MESSAGE
        )

    async def create_all(self, objects: Iterable[Obj], in_flight: int = _IN_FLIGHT) -> None:
        """Create many objects, some at a time."""
        await together((self.create(obj) for obj in objects), in_flight)

    async def apply(self, obj: Obj, manager: str) -> Obj:
        """Apply an object server-side, taking over what others own."""
        resource, metadata = BY_KIND[obj["kind"]], obj["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"])
        query = {"fieldManager": manager, "force": "true"}
        applied: Obj = await self.request("PATCH", path, obj, query=query, content_type=_APPLY)
        return applied

    async def merge(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        patch: Obj,
        subresource: str = "",
    ) -> Obj:
        """Merge a patch into one object."""
        path = resource.path(namespace, name, subresource)
        patched: Obj = await self.request("PATCH", path, patch, content_type=_MERGE)
        return patched

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, **options: Any
    ) -> None:
        """Delete one object; *options* are the fields of DeleteOptions."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        await self.request("DELETE", resource.path(namespace, name), body)

    async def bind(self, namespace: str, pod: str, node: str) -> None:
        """Bind a pod to a node, as a scheduler does."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, "namespace": namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.request("POST", PODS.path(namespace, pod, "binding"), body)

    async def kill_pods(self, namespace: str) -> int:
        """Take away the pods of a namespace without grace; return how many there were."""
        pods, _ = await self.list(PODS, namespace)
        await together((self._kill(namespace, pod["metadata"]["name"]) for pod in pods), _IN_FLIGHT)
        return len(pods)

    async def until_no_pods(self, namespace: str) -> None:
        """Delete the pods of a namespace, also pods that are created meanwhile."""

        async def none_was_left() -> bool:
            return not await self.kill_pods(namespace)

        await until(none_was_left, f"no pod is left in {namespace}")

    async def _kill(self, namespace: str, pod: str) -> None:
        try:
            await self.delete(PODS, namespace, pod, gracePeriodSeconds=0)
        except ApiError as error:
            if error.status != 404:
                raise

    async def service_account_token(self, namespace: str, name: str) -> str:
        """Ask for a token of a ServiceAccount, as the kubelet does for its pods."""
        path = SERVICE_ACCOUNTS.path(namespace, name, "token")
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _TOKEN_S},
        }
        answer = await self.request("POST", path, body)
        token: str = answer["status"]["token"]
        return token


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield whole lines; the reader's own line iteration refuses long ones."""
    pending = bytearray()
    async for chunk in content.iter_any():
        pending += chunk
        *whole, rest = pending.split(b"\n")
        for line in whole:
            yield bytes(line)
        pending = bytearray(rest)
