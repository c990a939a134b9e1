"""From nothing to a chain that takes TrainJobs, and back to nothing."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Final

from e2e.cluster import bootstrap
from e2e.cluster.api import Api
from e2e.cluster.binaries import BuiltPrograms, ensure_built
from e2e.cluster.catalog import Catalog
from e2e.cluster.certificates import Authority, write_service_account_keys
from e2e.cluster.cluster import Cluster
from e2e.cluster.kubeconfig import Credentials, make_tokens
from e2e.cluster.older_trainer import rewriting, trainjob_fields
from e2e.cluster.ports import PortBlock, reserve_ports
from e2e.cluster.programs import ClusterLayout
from e2e.cluster.registry import Note, RunFolder, sweep
from e2e.cluster.together import together

__all__ = ["Options", "running_cluster"]

_PORTS: Final = (
    "etcd",
    "etcd-peer",
    "kube-apiserver",
    "jobset-webhook",
    "jobset-health",
    "trainer-webhook",
    "trainer-health",
)


@dataclass(frozen=True)
class Options:
    """What a cluster is to be like."""

    name: str = "test"
    kube_scheduler: bool = False
    by_hand: bool = False
    say: Callable[[str], None] = lambda _line: None


@asynccontextmanager
async def running_cluster(options: Options | None = None) -> AsyncIterator[Cluster]:
    """Run one chain. Leaving ends every process of it and removes its run folder.

    When it is left by an error, or was told `keep_logs`, its logs go to the kept-logs folder.
    """
    options = options or Options()
    chain = ensure_built(*(["kube-scheduler"] if options.kube_scheduler else []))
    catalog = chain.catalog()
    sweep()
    began = time.monotonic()
    with RunFolder(options.name) as folder, closing(reserve_ports()) as ports:
        layout, credentials = _make_layout(folder, chain, ports)
        async with Api.connect(credentials) as api:
            api.rewrite = rewriting(trainjob_fields(catalog.crds))
            cluster = Cluster(folder, layout, credentials, ports, api)
            note = Note.of_us(folder.name, api.url, by_hand=options.by_hand)
            try:
                start = _Start(cluster, note, lambda word: options.say(_timed(word, began)))
                await start.run(catalog, credentials, scheduler=options.kube_scheduler)
                cluster.ready_after_s = time.monotonic() - began
                yield cluster
            finally:
                await cluster.end()


def _make_layout(
    folder: RunFolder, chain: BuiltPrograms, ports: PortBlock
) -> tuple[ClusterLayout, Credentials]:
    run = folder.path
    (run / "logs").mkdir()
    authority = Authority.create(run / "pki")
    layout = ClusterLayout(
        run=run,
        programs=chain.programs,
        ports={name: ports.next_port() for name in _PORTS},
        authority=authority.path,
        serving=authority.serve_loopback(run / "pki" / "serving"),
        service_accounts=write_service_account_keys(run / "pki"),
    )
    url = layout.url("kube-apiserver", "https")
    return layout, Credentials(url, authority.pem, make_tokens())


class _Start:
    """The steps of coming up, in their order."""

    def __init__(self, cluster: Cluster, note: Note, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._note = note
        self._say = say

    async def run(self, catalog: Catalog, credentials: Credentials, *, scheduler: bool) -> None:
        cluster = self._cluster
        bootstrap.write_files(cluster.layout, catalog, credentials)
        await self._programs("etcd")
        await self._programs("kube-apiserver")
        await cluster.api.create_all(bootstrap.namespaces())
        await cluster.while_alive(bootstrap.install_crds(cluster.api, catalog))
        self._say("CRDs are served")
        # The controller manager learns the kinds it collects when it starts: after the CRDs.
        await self._programs("kube-controller-manager", "jobset", "trainer", "kwok")
        await cluster.while_alive(
            bootstrap.bootstrap(cluster.api, cluster.layout, catalog, credentials)
        )
        self._say("webhooks, runtimes and storage classes are installed")
        if scheduler:
            await self._programs("kube-scheduler")
        self._write_note(ready=True)

    async def _programs(self, *names: str) -> None:
        for name in names:
            self._cluster.process(name).start()
        self._write_note(ready=False)
        await together(self._cluster.ready(name) for name in names)
        self._say(f"{', '.join(names)} up")

    def _write_note(self, *, ready: bool) -> None:
        running = {process.name: process.identity for process in self._cluster.processes}
        programs = {name: who for name, who in running.items() if who is not None}
        self._note._replace(ready=ready, programs=programs).write()


def _timed(word: str, began: float) -> str:
    return f"{time.monotonic() - began:5.1f} s  {word}"
