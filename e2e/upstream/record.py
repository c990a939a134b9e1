"""Record the JobSets that Trainer builds, for tests that need no chain: `make fixtures`.

Every shipped runtime, with numNodes left out, 1, 2 and 4, each with and without a runtimePatch. A
fixture holds what was submitted and what was built; what no two runs share is left out. The
runtimes are recorded beside them as the API server serves them, so are corners that no shipped
runtime shows, and two pods byte for byte.
"""

import asyncio
import itertools
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from e2e.cluster import resources
from e2e.cluster.binaries import ensure_built
from e2e.cluster.bringup import Options, running_cluster
from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import CLUSTER_RUNTIMES, JOBSETS, NAMESPACES, Obj
from e2e.cluster.together import together
from e2e.cluster.trainjobs import Submission
from e2e.upstream.record_corners import record_corners
from e2e.upstream.record_pods import record_pods
from e2e.upstream.stable_fields import as_text, stable_fields

FIXTURES: Final = Path(__file__).parents[2] / "tests" / "fixtures"
_NUM_NODES: Final = (None, 1, 2, 4)
_PATCHED_POD: Final[Obj] = {
    "metadata": {"labels": {"team": "vision"}, "annotations": {"run-seconds": "5s"}},
    "spec": {
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
    },
}
_PATCH: Final[Obj] = {
    "metadata": {"labels": {"cost-centre": "42"}, "annotations": {"note": "patched"}},
    "spec": {
        "replicatedJobs": [
            {
                "name": "node",
                "template": {
                    "metadata": {"labels": {"stage": "training"}},
                    "spec": {"template": _PATCHED_POD},
                },
            }
        ]
    },
}


class RecordedCase(NamedTuple):
    """One TrainJob to submit and where its fixture lies."""

    runtime: str
    num_nodes: int | None
    patched: bool

    @property
    def file(self) -> Path:
        """Return the path of the fixture, below the fixtures folder."""
        nodes = "default-nodes" if self.num_nodes is None else f"{self.num_nodes}-nodes"
        return Path("jobsets") / self.runtime / f"{nodes}{'-patched' if self.patched else ''}.yaml"

    def submission(self, namespace: str) -> Submission:
        """Return what to submit; the name is the same in every fixture."""
        patches = _PATCH if self.patched else None
        return Submission("job", self.runtime, namespace, self.num_nodes, patches=patches)


def all_cases(runtimes: list[str]) -> Iterator[RecordedCase]:
    """Yield every combination that is recorded."""
    for runtime, num_nodes, patched in itertools.product(runtimes, _NUM_NODES, (False, True)):
        yield RecordedCase(runtime, num_nodes, patched)


async def record(cluster: Cluster) -> Mapping[Path, str]:
    """Submit every case to a chain and return the text of every fixture by its path."""
    runtimes, _ = await cluster.api.list(CLUSTER_RUNTIMES)
    cases = list(all_cases([runtime["metadata"]["name"] for runtime in runtimes]))
    texts = await together((_record(cluster, i, case) for i, case in enumerate(cases)), at_once=16)
    files = {case.file: text for case, text in zip(cases, texts, strict=True)}
    for runtime in runtimes:
        file = Path("runtimes") / f"{runtime['metadata']['name']}.yaml"
        files[file] = as_text(stable_fields(runtime))
    return files


async def _record(cluster: Cluster, number: int, case: RecordedCase) -> str:
    namespace = f"record-{number}"
    await cluster.api.create(resources.namespace(namespace))
    submitted = case.submission(namespace).trainjob()
    await cluster.api.create(submitted)
    await cluster.until_found(JOBSETS, namespace, "job")
    built = await cluster.api.get(JOBSETS, namespace, "job")
    await cluster.api.delete(NAMESPACES, None, namespace)
    return as_text(stable_fields(submitted), stable_fields(built))


async def main() -> None:
    """Replace the recorded fixtures."""
    async with running_cluster(Options(name="record")) as cluster:
        files = {
            **await record(cluster),
            **await record_corners(cluster),
            **await record_pods(cluster),
        }
    for folder in ("corners", "jobsets", "pods", "runtimes"):
        shutil.rmtree(FIXTURES / folder, ignore_errors=True)
    for file, text in files.items():
        (FIXTURES / file).parent.mkdir(parents=True, exist_ok=True)
        (FIXTURES / file).write_text(text)
    print(f"{len(files)} fixtures recorded")


if __name__ == "__main__":
    try:
        ensure_built()  # outside the event loop, which would keep Ctrl-C from it
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(130)
