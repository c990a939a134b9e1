"""The real chain as an async context manager: etcd to KWOK, ready to take TrainJobs."""

import asyncio
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiohttp

from e2e.cluster import furnish, registry
from e2e.cluster.api import Api
from e2e.cluster.audit import AuditLog
from e2e.cluster.binaries import Chain, ensure_chain
from e2e.cluster.certificates import Authority, write_service_account_keys
from e2e.cluster.kubeconfig import ADMIN, kubeconfig, make_tokens, write_kubeconfigs
from e2e.cluster.nodes import NodeShape, make_nodes
from e2e.cluster.ports import PortBlock, reserve_ports
from e2e.cluster.process import Process
from e2e.cluster.programs import Ground, all_programs
from e2e.cluster.proxy import FaultProxy
from e2e.cluster.resources import NODES, Obj, Resource
from e2e.cluster.timeline import Timeline

__all__ = ["Cluster", "Options"]

_PORTS: Final = (
    "etcd",
    "etcd-peer",
    "kube-apiserver",
    "jobset-webhook",
    "jobset-health",
    "trainer-webhook",
    "trainer-health",
)
_READY_S: Final = 60.0  # a busy machine is slow; a broken chain says so by a program that died


@dataclass(frozen=True)
class Options:
    """What a cluster is to be like."""

    name: str = "test"
    kube_scheduler: bool = False
    by_hand: bool = False
    say: Callable[[str], None] = lambda _line: None


class Cluster:
    """One running chain, for `async with`: leaving ends every process and removes the run folder.

    When it is left by an error, or after `keep_logs`, the logs stay in the kept-logs folder.
    """

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self._started = time.monotonic()
        self._keep_logs = False
        self._wanted: set[str] = set()

    async def __aenter__(self) -> Self:
        chain = ensure_chain()
        self._started = time.monotonic()
        self.name = registry.free_name(self.options.name)
        try:
            self._ports = reserve_ports()
            self._lay_ground(chain, self._ports)
            await self._start(chain)
        except BaseException:
            await self._end(failed=True)
            raise
        self.ready_after_s = time.monotonic() - self._started
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asked = kind is not None and issubclass(kind, asyncio.CancelledError | KeyboardInterrupt)
        await self._end(failed=kind is not None and not asked)

    # --- what tests use -------------------------------------------------------------------------

    @property
    def processes(self) -> list[Process]:
        """Return every program this cluster runs."""
        return [p for p in self._processes.values() if p.name in self._wanted]

    def process(self, name: str) -> Process:
        """Return one program, to stop, start, kill or pause it."""
        return self._processes[name]

    def free_port(self) -> int:
        """Return a port of this cluster that nobody uses, for a server of the test's own."""
        return self._ports.take()

    @property
    def kubeconfig(self) -> Path:
        """Return the administrator's kubeconfig."""
        return self.ground.kubeconfig(ADMIN)

    def connect(self, url: str = "", token: str = "") -> Api:
        """Return a connection of the test's own: through a proxy, or as somebody else."""
        return Api(url or self.api.url, token or self.api.token, self._tls)

    async def service_account_kubeconfig(self, namespace: str, name: str, server: str = "") -> Path:
        """Write and return the kubeconfig of an existing ServiceAccount, with a token of its own.

        *server* may name a proxy to go through.
        """
        token = await self.api.service_account_token(namespace, name)
        return self._write_kubeconfig(f"{namespace}.{name}", token, server)

    def proxied_kubeconfig(self, proxy: FaultProxy) -> Path:
        """Write and return an administrator's kubeconfig that goes through a proxy."""
        return self._write_kubeconfig(f"{ADMIN}-by-proxy", self._tokens[ADMIN], proxy.url)

    async def add_nodes(
        self, count: int, shape: NodeShape | None = None, *, prefix: str = "node", racks: int = 0
    ) -> list[str]:
        """Create nodes and wait until they are Ready and free of taints that the chain sets."""
        nodes = make_nodes(count, shape, prefix=prefix, racks=racks)
        await self.api.create_all(nodes)
        names = [node["metadata"]["name"] for node in nodes]
        while True:
            listed, _ = await self.api.list(NODES)
            if set(names) <= {node["metadata"]["name"] for node in listed if _is_usable(node)}:
                return names
            await asyncio.sleep(0.05)

    async def until_found(self, resource: Resource, namespace: str | None, name: str) -> None:
        """Wait until an object that a controller makes is there."""
        await self.api.until_found(resource.path(namespace, name))

    def timeline(self, *resources: Resource, namespace: str | None = None) -> Timeline:
        """Return a record of every change of some kinds of object, to be used with `async with`."""
        return Timeline(self.api, resources, namespace=namespace)

    @asynccontextmanager
    async def proxy(self) -> AsyncIterator[FaultProxy]:
        """Run a proxy in front of the API server that can delay, cut and refuse."""
        proxy = FaultProxy(
            upstream=self.api.url,
            port=self.free_port(),
            serving=self.ground.serving,
            authority=self.ground.authority,
        )
        async with proxy:
            yield proxy

    @property
    def audit(self) -> AuditLog:
        """Return the API server's record of writes."""
        return AuditLog(self.ground.run / "logs" / "audit.jsonl", self.api)

    async def ready(self, name: str) -> None:
        """Wait until a program that was started again answers."""
        process = self._processes[name]
        url = process.program.ready_url
        deadline = time.monotonic() + _READY_S
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            while url and time.monotonic() < deadline:
                process.check()
                with suppress(aiohttp.ClientError, TimeoutError):
                    async with session.get(url, ssl=self._tls, headers=self._as_admin) as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(0.03)
        if url:
            message = f"{name} did not get ready within {_READY_S:g} s; its log is {process.log}"
            raise TimeoutError(message)

    def keep_logs(self) -> None:
        """Let the logs survive the cluster, for a test that failed."""
        self._keep_logs = True

    # --- how it comes up and goes down ----------------------------------------------------------

    def _lay_ground(self, chain: Chain, ports: PortBlock) -> None:
        run = registry.clusters_root() / self.name
        (run / "logs").mkdir()
        authority = Authority.create(run / "pki")
        self.authority_pem = authority.pem
        self.ground = Ground(
            run=run,
            programs=chain.folder / "bin",
            ports={name: ports.take() for name in _PORTS},
            authority=authority.path,
            serving=authority.serve_loopback(run / "pki" / "serving"),
            service_accounts=write_service_account_keys(run / "pki"),
        )
        self._tokens = make_tokens()
        self._as_admin = {"Authorization": f"Bearer {self._tokens[ADMIN]}"}
        self._tls = ssl.create_default_context(cafile=str(authority.path))
        url = self.ground.url("kube-apiserver", "https")
        self.api = Api(url, self._tokens[ADMIN], self._tls)
        self._processes = {
            name: Process(program, run / "logs" / f"{name}.log")
            for name, program in all_programs(self.ground).items()
        }
        self._note = registry.note_of_us(self.name, url, by_hand=self.options.by_hand)
        self._note.write()

    async def _start(self, chain: Chain) -> None:
        catalog = chain.catalog()
        furnish.write_files(self.ground, catalog, self.authority_pem, self._tokens)
        await self._run("etcd")
        await self._run("kube-apiserver")
        await self.api.create_all(furnish.namespaces())
        await furnish.install_crds(self.api, catalog)
        self._say("CRDs are served")
        # The controller manager learns the kinds it collects when it starts: after the CRDs.
        await self._run("kube-controller-manager", "jobset", "trainer", "kwok")
        await furnish.furnish(self.api, self.ground, catalog, self.authority_pem)
        self._say("webhooks, runtimes and storage classes are installed")
        if self.options.kube_scheduler:
            await self._run("kube-scheduler")
        for process in self.processes:
            process.check()
        self._write_note(ready=True)

    async def _run(self, *names: str) -> None:
        for name in names:
            self._wanted.add(name)
            self._processes[name].start()
        self._write_note(ready=False)
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(self.ready(name))
        self._say(f"{', '.join(names)} up")

    async def _end(self, *, failed: bool) -> None:
        """End every process at once: their data goes with them, so nobody needs a grace."""
        processes = getattr(self, "_processes", {}).values()
        for process in processes:
            process.kill_nowait()
        for process in processes:
            await process.kill()
        if hasattr(self, "api"):
            await self.api.close()
        if hasattr(self, "_ports"):
            self._ports.close()
        folder = registry.clusters_root() / self.name
        if (failed or self._keep_logs) and (folder / "logs").is_dir():
            print(f"the logs of {self.name} are in {registry.keep_logs(folder)}", file=sys.stderr)
        registry.remove(folder)

    def _write_kubeconfig(self, user: str, token: str, server: str) -> Path:
        server = server or self.ground.url("kube-apiserver", "https")
        text = kubeconfig(server, self.authority_pem, user, token)
        write_kubeconfigs(self.ground.run / "kubeconfigs", [(user, text)])
        return self.ground.kubeconfig(user)

    def _write_note(self, *, ready: bool) -> None:
        running = {name: process.identity for name, process in self._processes.items()}
        programs = {name: who for name, who in running.items() if who is not None}
        self._note = self._note._replace(ready=ready, programs=programs)
        self._note.write()

    def _say(self, word: str) -> None:
        self.options.say(f"{time.monotonic() - self._started:5.1f} s  {word}")


def _is_usable(node: Obj) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    taints = node["spec"].get("taints", [])
    return ready and not any(taint["key"].startswith("node.kubernetes.io/") for taint in taints)
