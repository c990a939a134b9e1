"""An installation to be broken and repaired, and the doctor's report about it."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from e2e.cluster.api import ApiError
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import until
from e2e.cluster.resources import JOBSETS, LEASES, Obj, Resource
from e2e.fixtures.install import install
from e2e.fixtures.processes import (
    NAMESPACE,
    PODGROUPER,
    SCHEDULER,
    WEBHOOK,
    ProductProcess,
    running,
    webhook_port,
)
from tests.support.repository import ROOT
from trainer_kai.api.names import ADMITTED
from trainer_kai.cli.commands.doctor import dry_run_objects

RUNTIME_CLASSES: Final = Resource(
    "node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False
)


class DoctorOutput(NamedTuple):
    """What the command said."""

    code: int
    out: str
    err: str

    @property
    def not_ok(self) -> dict[str, tuple[str, str]]:
        """Return what is not ok: state and sentence, by check."""
        findings = json.loads(self.out)["findings"]
        return {it["check"]: (it["state"], it["is"]) for it in findings if it["state"] != "ok"}


class DoctorInstallation(NamedTuple):
    """A chain with all processes of ours."""

    cluster: Cluster
    webhook: ProductProcess
    podgrouper: ProductProcess
    scheduler: ProductProcess

    async def run_doctor(self, *arguments: str, kubeconfig: Path | None = None) -> DoctorOutput:
        """Ask the doctor, as the administrator or as somebody else."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "trainer_kai.cli", "doctor", *arguments),
            stdout=pipe,
            stderr=pipe,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "KUBECONFIG": str(kubeconfig or self.cluster.kubeconfig),
            },
        )
        out, err = await process.communicate()
        return DoctorOutput(process.returncode or 0, out.decode(), err.decode())

    async def findings(self) -> dict[str, tuple[str, str]]:
        """Return what the doctor finds wrong; the exit code has to say the same."""
        report = await self.run_doctor("-o", "json")
        assert report.err == ""
        is_tried = report.not_ok.get("TrainJob dry run", ("ok", ""))[0] != "unknown"
        is_faulty = any(state == "fault" for state, _ in report.not_ok.values())
        assert report.code == (1 if is_faulty else 0 if is_tried else 2)
        return report.not_ok

    async def until_refused(self, words: str) -> None:
        """Wait until a JobSet is refused like this: the API server follows what was changed."""

        async def is_so() -> bool:
            return words in str(await self._try_jobset())

        await until(is_so, f"a JobSet is refused with {words!r}")

    async def until_injected(self) -> None:
        """Wait until a JobSet is injected again."""

        async def is_so() -> bool:
            return ADMITTED in str(await self._try_jobset())

        await until(is_so, "a JobSet is injected")

    async def until_reviewed(self) -> None:
        """Wait until a TrainJob that cannot work is refused again."""

        async def is_so() -> bool:
            report = await self.run_doctor("-o", "json")
            return "invalid TrainJob dry run" not in report.not_ok

        await until(is_so, "a TrainJob that cannot work is refused")

    async def _try_jobset(self) -> Obj | ApiError:
        body = dry_run_objects.jobset("default")
        path = JOBSETS.path("default")
        try:
            got: Obj = await self.cluster.api.request("POST", path, body, query={"dryRun": "All"})
        except ApiError as error:
            return error
        return got

    async def until_stale(self, name: str) -> None:
        """Wait until a Lease is older than it may be."""

        async def is_so() -> bool:
            return _is_expired(await self.cluster.api.get(LEASES, NAMESPACE, name))

        await until(is_so, f"Lease {name} is stale")

    async def until_leaders(self) -> None:
        """Wait until somebody who lives holds both Leases."""

        async def is_so() -> bool:
            leases, _ = await self.cluster.api.list(LEASES, NAMESPACE)
            return sum(map(_has_holder, leases)) == 2

        await until(is_so, "both Leases have a holder")

    @asynccontextmanager
    async def without(
        self, resource: Resource, namespace: str | None, name: str
    ) -> AsyncIterator[None]:
        """Have an object deleted for a while."""
        found = await self.cluster.api.get(resource, namespace, name)
        await self.cluster.api.delete(resource, namespace, name)
        try:
            yield
        finally:
            await self.cluster.api.request("POST", resource.path(namespace), as_new(found))

    @asynccontextmanager
    async def with_objects(self, resource: Resource, *objects: Obj) -> AsyncIterator[None]:
        """Have more objects for a while."""
        for obj in objects:
            typed = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
            place = obj["metadata"].get("namespace")
            await self.cluster.api.request("POST", resource.path(place), typed)
        try:
            yield
        finally:
            for obj in objects:
                metadata = obj["metadata"]
                await self.cluster.api.delete(resource, metadata.get("namespace"), metadata["name"])

    @asynccontextmanager
    async def with_change(
        self, resource: Resource, name: str, change: Callable[[Any], None]
    ) -> AsyncIterator[None]:
        """Have an object of no namespace otherwise for a while."""
        found = await self.cluster.api.get(resource, None, name)
        spoilt = json.loads(json.dumps(found))
        change(spoilt)
        await self._put(resource, name, spoilt)
        try:
            yield
        finally:
            await self._put(resource, name, found)

    async def _put(self, resource: Resource, name: str, obj: Obj) -> None:
        """Write an object whole, over whatever it is by now."""
        while True:
            there = await self.cluster.api.get(resource, None, name)
            written = as_new(obj)
            written["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
            try:
                await self.cluster.api.request("PUT", resource.path(None, name), written)
            except ApiError as error:
                if error.status != 409:
                    raise
            else:
                return


def _has_holder(lease: Obj) -> bool:
    """Say whether somebody holds a Lease; whoever died does not, though his name stands there."""
    return bool(lease["spec"].get("holderIdentity")) and not _is_expired(lease)


def _is_expired(lease: Obj) -> bool:
    """Say whether a Lease was renewed longer ago than it lasts."""
    age = datetime.now(UTC) - datetime.fromisoformat(lease["spec"]["renewTime"])
    return age.total_seconds() > float(lease["spec"]["leaseDurationSeconds"])


def as_new(obj: Obj) -> Obj:
    """Return an object to write, whatever it was written over."""
    kept = {"name", "namespace", "labels", "annotations"}
    metadata = {name: it for name, it in obj["metadata"].items() if name in kept}
    return {**obj, "metadata": metadata}


@asynccontextmanager
async def run_doctor_installation(name: str, folder: Path) -> AsyncIterator[DoctorInstallation]:
    """Run a chain with all processes, set up by the manifests."""
    async with running_cluster(Options(name=name)) as cluster, AsyncExitStack() as stack:
        await cluster.add_nodes(1)
        await install(cluster, port=webhook_port(cluster))
        nvidia = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}  # as the GPU operator has it
        await cluster.api.request("POST", RUNTIME_CLASSES.path(), nvidia)
        parts = [
            await stack.enter_async_context(running(cluster, part, folder))
            for part in (WEBHOOK, PODGROUPER, SCHEDULER)
        ]
        doctor_installation = DoctorInstallation(cluster, *parts)
        await doctor_installation.until_leaders()
        yield doctor_installation
