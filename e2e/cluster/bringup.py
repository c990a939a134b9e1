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
from e2e.cluster.etcd_template import copy_template, keep_as_template, template_of
from e2e.cluster.kubeconfig import Credentials, make_tokens
from e2e.cluster.older_trainer import rewriting, trainjob_fields
from e2e.cluster.ports import PortBlock, reserve_ports
from e2e.cluster.programs import ClusterLayout
from e2e.cluster.registry import Note, RunFolder, sweep
from e2e.cluster.together import together

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
    async with _started(options, chain) as start:
        await start.api_server()
        await start.others(scheduler=options.kube_scheduler)
        yield start.cluster


async def ensure_template() -> None:
    """Make the template of etcd's data, from which later clusters start, if it is not there."""
    chain = ensure_built()
    catalog = chain.catalog()
    if template_of(catalog).is_dir():
        return
    async with _started(Options(name="template"), chain) as start:
        await start.api_server()
        await start.cluster.process("kube-apiserver").kill()
        await start.cluster.process("etcd").stop()
        keep_as_template(catalog, start.cluster.layout.etcd_data)


@asynccontextmanager
async def _started(options: Options, chain: BuiltPrograms) -> AsyncIterator["_Start"]:
    """Prepare a cluster that has no process yet; in the end all of its processes end."""
    sweep()
    with RunFolder(options.name) as folder, closing(reserve_ports()) as ports:
        layout, credentials = _make_layout(folder, chain, ports)
        catalog = chain.catalog()
        async with Api.connect(credentials) as api:
            api.rewrite = rewriting(trainjob_fields(catalog.crds))
            cluster = Cluster(folder, layout, credentials, ports, api)
            note = Note.of_us(folder.name, api.url, by_hand=options.by_hand)
            try:
                yield _Start(cluster, note, catalog, credentials, options.say)
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

    def __init__(
        self,
        cluster: Cluster,
        note: Note,
        catalog: Catalog,
        credentials: Credentials,
        say: Callable[[str], None],
    ) -> None:
        self.cluster = cluster
        self._note = note
        self._catalog = catalog
        self._credentials = credentials
        self._say_line = say
        self._began_s = time.monotonic()

    async def api_server(self) -> None:
        """Start etcd and the API server, until it serves the CRDs."""
        cluster, catalog = self.cluster, self._catalog
        bootstrap.write_files(cluster.layout, catalog, self._credentials)
        is_furnished = copy_template(catalog, cluster.layout.etcd_data)
        await self._programs("etcd")
        await self._programs("kube-apiserver")
        if not is_furnished:
            await cluster.api.create_all([*bootstrap.namespaces(), *catalog.crds])
        await cluster.while_alive(bootstrap.crds_are_served(cluster.api, catalog))
        self._say("CRDs are served")

    async def others(self, *, scheduler: bool) -> None:
        """Start the controllers, and create what they must see."""
        cluster = self.cluster
        # The controller manager learns the kinds it collects when it starts: after the CRDs.
        await self._programs("kube-controller-manager", "jobset", "trainer", "kwok")
        await cluster.while_alive(
            bootstrap.bootstrap(cluster.api, cluster.layout, self._catalog, self._credentials)
        )
        self._say("webhooks, runtimes and storage classes are installed")
        if scheduler:
            await self._programs("kube-scheduler")
        self._write_note(ready=True)

    async def _programs(self, *names: str) -> None:
        for name in names:
            self.cluster.process(name).start()
        self._write_note(ready=False)
        await together(self.cluster.ready(name) for name in names)
        self._say(f"{', '.join(names)} up")

    def _write_note(self, *, ready: bool) -> None:
        running = {process.name: process.identity for process in self.cluster.processes}
        programs = {name: who for name, who in running.items() if who is not None}
        self._note._replace(ready=ready, programs=programs).write()

    def _say(self, word: str) -> None:
        self._say_line(f"{time.monotonic() - self._began_s:5.1f} s  {word}")
