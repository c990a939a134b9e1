"""One running chain, as tests use it. `bringup` makes it and ends it."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp

from e2e.cluster.api import Api, ApiError
from e2e.cluster.audit import AuditLog
from e2e.cluster.kubeconfig import ADMIN, Credentials, write_kubeconfig
from e2e.cluster.nodes import NodeShape, make_nodes
from e2e.cluster.patience import patience, patience_s
from e2e.cluster.ports import PortBlock
from e2e.cluster.process import Process
from e2e.cluster.programs import ClusterLayout, all_programs
from e2e.cluster.proxy import FaultProxy
from e2e.cluster.registry import RunFolder
from e2e.cluster.resources import CRDS, NODES, Obj, Resource
from e2e.cluster.timeline import Timeline

_READY_S: Final = 60.0  # a broken chain says so before, by a program that died


class Cluster:
    """The programs of one chain, its nodes, its faults, its witnesses."""

    def __init__(
        self,
        folder: RunFolder,
        layout: ClusterLayout,
        credentials: Credentials,
        ports: PortBlock,
        api: Api,
    ) -> None:
        self.name = folder.name
        self.layout = layout
        self.api = api
        self._folder = folder
        self._credentials = credentials
        self._ports = ports
        self._processes = {
            name: Process(program, layout.run / "logs" / f"{name}.log")
            for name, program in all_programs(layout).items()
        }

    @property
    def processes(self) -> list[Process]:
        """Return every program this cluster runs."""
        return [process for process in self._processes.values() if process.wanted]

    def process(self, name: str) -> Process:
        """Return one program, to stop, start, kill or pause it."""
        return self._processes[name]

    def free_port(self) -> int:
        """Return a port of this cluster that nobody uses, for a server of the test's own."""
        return self._ports.next_port()

    @property
    def kubeconfig(self) -> Path:
        """Return the administrator's kubeconfig."""
        return self.layout.kubeconfig(ADMIN)

    def connect(self, url: str = "", token: str = "", user: str = "") -> Api:
        """Return a connection of the test's own: through a proxy, or as another account.

        The administrator may act for a user, with all rights.
        """
        headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
        return Api(
            *(url or self.api.url, token or self.api.token, self.api.tls), headers if user else {}
        )

    async def service_account_kubeconfig(self, namespace: str, name: str, server: str = "") -> Path:
        """Write and return the kubeconfig of an existing ServiceAccount, with a token of its own.

        *server* may name a proxy to go through.
        """
        token = await self.api.service_account_token(namespace, name)
        port = server.rpartition(":")[2]
        return self._write_kubeconfig(f"{namespace}.{name}{port and '-by-'}{port}", token, server)

    def proxied_kubeconfig(self, proxy: FaultProxy) -> Path:
        """Write and return an administrator's kubeconfig that goes through a proxy."""
        return self._write_kubeconfig(f"{ADMIN}-by-proxy", self.api.token, proxy.url)

    async def add_nodes(
        self, count: int, shape: NodeShape | None = None, *, prefix: str = "node", racks: int = 0
    ) -> list[str]:
        """Create nodes and wait until they are Ready and free of taints that the chain sets."""
        nodes = make_nodes(count, shape, prefix=prefix, racks=racks)
        await self.api.create_all(nodes)
        names = [node["metadata"]["name"] for node in nodes]
        await self.while_alive(self._until_usable(set(names)))
        return names

    async def _until_usable(self, names: set[str]) -> None:
        while True:
            listed, _ = await self.api.list(NODES)
            if names <= {node["metadata"]["name"] for node in listed if _is_usable(node)}:
                return
            await asyncio.sleep(0.05)

    async def while_alive(self, work: Coroutine[object, object, None]) -> None:
        """Do what every program of the chain is needed for; fail as soon as one is gone."""
        task = asyncio.create_task(work)
        deadline = time.monotonic() + patience_s(_READY_S)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=0.2)
                for process in self.processes:
                    process.check()
                if time.monotonic() > deadline:
                    message = f"the chain did not do its part within {patience_s(_READY_S):g} s"
                    raise TimeoutError(message)
        finally:
            task.cancel()  # does nothing to a task that is done
            await asyncio.wait([task])
        task.result()

    async def until_found(self, resource: Resource, namespace: str | None, name: str) -> None:
        """Wait until an object that a controller makes is there."""
        await self.api.until_found(resource.path(namespace, name))

    def timeline(self, *resources: Resource, namespace: str | None = None) -> Timeline:
        """Return a record of every change of some kinds of object, to be used with `async with`."""
        return Timeline(self.api, resources, namespace=namespace)

    @asynccontextmanager
    async def proxy(self) -> AsyncIterator[FaultProxy]:
        """Run a proxy in front of the API server that can delay, cut and refuse."""
        port = self.free_port()
        proxy = FaultProxy(self.api.url, port, self.layout.serving, self.layout.authority)
        try:
            async with proxy:
                yield proxy
        finally:
            self._ports.put_back(port)

    @property
    def audit(self) -> AuditLog:
        """Return the API server's record of writes."""
        return AuditLog(self.layout.run / "logs" / "audit.jsonl", self.api)

    async def ready(self, name: str) -> None:
        """Wait until a program that was started again answers."""
        process = self._processes[name]
        if process.program.ready_url is None:
            return
        try:
            async with patience(_READY_S):
                while not await self._is_answering(process.program.ready_url):
                    process.check()
                    await asyncio.sleep(0.03)
        except TimeoutError:
            message = f"{name} did not get ready in {patience_s(_READY_S):g} s; log: {process.log}"
            raise TimeoutError(message) from None

    async def forget_history(self) -> None:
        """Compact etcd and restart the API server: a watch from before is told that it expired.

        The restart is needed because the API server keeps a window of events of its own.
        """
        etcd = self.layout.url("etcd")
        answer = await self.api.request("POST", f"{etcd}/v3/kv/range", {"key": "AA=="})
        compaction = {"revision": answer["header"]["revision"], "physical": True}
        await self.api.request("POST", f"{etcd}/v3/kv/compaction", compaction)
        await self.restart_api_server()

    async def restart_api_server(self) -> None:
        """Kill it and start it again; return when whatever is defined can be read.

        It is ready before that: for some seconds it may still answer 429 for our kinds.
        """
        await self.process("kube-apiserver").kill()
        self.process("kube-apiserver").start()
        await self.ready("kube-apiserver")
        await self.while_alive(self._until_served())

    async def _until_served(self) -> None:
        """Wait until what is defined can be read: an API server that starts answers 429.

        It does so only to whom it answers from memory, which is not who asks for the first page.
        """
        definitions, _ = await self.api.list(CRDS)
        for spec in (definition["spec"] for definition in definitions):
            version = next(it["name"] for it in spec["versions"] if it["storage"])
            kind = f"{spec['group']}/{version}/{spec['names']['plural']}"
            await self.api.until_found(f"/apis/{kind}?labelSelector=nobody")

    async def _is_answering(self, url: str) -> bool:
        try:
            await self.api.request("GET", url)
        except (ApiError, aiohttp.ClientError):
            return False
        return True

    async def end(self) -> None:
        """End every program at once: their data goes with them, so nobody needs a grace."""
        for process in self._processes.values():
            process.kill_nowait()
        for process in self._processes.values():
            await process.kill()

    def keep_logs(self) -> None:
        """Let the logs survive the cluster, for a test that failed."""
        self._folder.keep_logs = True

    def _write_kubeconfig(self, user: str, token: str, server: str) -> Path:
        text = self._credentials.kubeconfig(user, token, server)
        return write_kubeconfig(self.layout.kubeconfig(user), text)


def _is_usable(node: Obj) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    taints = node["spec"].get("taints", [])
    return ready and not any(taint["key"].startswith("node.kubernetes.io/") for taint in taints)
