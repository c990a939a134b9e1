"""Run the demo on each chain and write docs/versions.md: `make versions`."""

import asyncio
import datetime as dt
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

from e2e.cluster.api import ApiError
from e2e.cluster.binaries import ensure_built
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.catalog import Catalog
from e2e.cluster.chains import CHAIN, all_chains
from e2e.cluster.cluster import Cluster
from e2e.cluster.older_trainer import trainjob_fields
from e2e.cluster.patience import patience_s
from e2e.cluster.process import ProgramDied
from e2e.cluster.resources import Obj
from e2e.cluster.toolchain import BuildError
from e2e.fixtures.install import MANIFESTS, build
from e2e.versions.table import ChainRun, failure_of, failure_text, kubernetes_version, page
from tests.support.repository import ROOT

_DEMO: Final = [sys.executable, "-m", "e2e.demo"]
_DEMO_S: Final = 600.0
_PAGE: Final = ROOT / "docs" / "versions.md"


def main() -> int:
    """Run every chain; 1 if the demo fails on one of them."""
    runs = [_run(name) for name in all_chains()]
    _PAGE.write_text(page(sorted(runs, key=kubernetes_version)))
    print(f"\n{_PAGE.relative_to(ROOT)}:\n\n{_PAGE.read_text()}")
    return 1 if any(run.failure for run in runs) else 0


def _run(chain: str) -> ChainRun:
    os.environ[CHAIN] = chain  # for the demo, and for the library here
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    try:
        catalog = ensure_built().catalog()
    except BuildError as error:
        return ChainRun(chain, {}, None, failure_text(f"cannot be built: {error}"), 0.0, today)
    print(f"\nchain {chain}: {catalog.versions}", flush=True)
    try:
        kinds = asyncio.run(_served_kinds())
    except (ApiError, BuildError, ProgramDied, TimeoutError) as error:
        failure = failure_text(f"the chain does not start: {error}")
        return ChainRun(chain, catalog.versions, None, failure, 0.0, today)
    began = time.monotonic()
    failure = _demo_failure()
    seconds = time.monotonic() - began
    features = kinds | frozenset(_trainer_features(catalog))
    return ChainRun(chain, catalog.versions, features, failure, seconds, today)


def _demo_failure() -> str:
    """Run the demo; return why it failed, or nothing."""
    try:
        done = subprocess.run(
            _DEMO, stderr=subprocess.PIPE, text=True, check=False, timeout=patience_s(_DEMO_S)
        )
    except subprocess.TimeoutExpired:
        return f"the demo did not end within {patience_s(_DEMO_S):.0f} s"
    print(done.stderr, file=sys.stderr, end="")
    return failure_of(done.returncode, done.stderr)


async def _served_kinds() -> frozenset[str]:
    """Return the kinds that some overlay needs and the API server of the chain serves."""
    async with running_cluster(Options(name="versions")) as cluster:
        served = await _discovered(cluster)
        needed: dict[str, list[str]] = {}
        for overlay in sorted(folder.name for folder in (MANIFESTS / "overlays").iterdir()):
            for kind in {_kind(obj) for obj in await build(MANIFESTS / "overlays" / overlay)}:
                needed.setdefault(kind, []).append(f"`{overlay}`")
    return frozenset(
        f"{kind}, which the overlay {', '.join(overlays)} needs"
        for kind, overlays in needed.items()
        if kind in served
    )


async def _discovered(cluster: Cluster) -> set[str]:
    groups = (await cluster.api.request("GET", "/apis"))["groups"]
    paths = [
        "/api/v1",
        *(f"/apis/{it['groupVersion']}" for group in groups for it in group["versions"]),
    ]
    lists = [await cluster.api.request("GET", path) for path in paths]
    return {f"`{it['groupVersion']}` {one['kind']}" for it in lists for one in it["resources"]}


def _kind(obj: Obj) -> str:
    return f"`{obj['apiVersion']}` {obj['kind']}"


def _trainer_features(catalog: Catalog) -> Iterator[str]:
    """Yield what TrainJobs can say, and the runtimes that Trainer ships."""
    for field in trainjob_fields(catalog.crds):
        yield f"`spec.{field}` of a TrainJob"
    for runtime in catalog.runtimes:
        name = runtime["metadata"]["name"]
        yield f"runtime `{name}`"
        jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        for job in jobs:
            if "dependsOn" in job:
                yield f"runtime `{name}`: `{job['name']}` starts after others (`dependsOn`)"


if __name__ == "__main__":
    sys.exit(main())
