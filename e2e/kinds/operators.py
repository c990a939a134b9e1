"""Real operators, built from the Go module proxy: their kinds, and their processes on a chain."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from e2e.cluster.binaries import ensure_built
from e2e.cluster.cluster import Cluster
from e2e.cluster.go_build import module_folders
from e2e.cluster.process import Process
from e2e.cluster.programs import Program
from e2e.cluster.recipe import all_recipes
from e2e.cluster.resources import Obj
from e2e.fixtures.processes import ProductProcess


class Operator(NamedTuple):
    program: str
    module: str
    definitions: str  # the folder of its CRDs in the module
    kinds: frozenset[str]  # that are installed
    arguments: Sequence[str] = ()

    def read_definitions(self) -> list[Obj]:
        """Return its CRDs, in the version that is built."""
        recipe = all_recipes()[self.program]
        folder = module_folders({self.module: recipe.module})[self.module] / self.definitions
        found = (yaml.load(it.read_bytes(), yaml.CSafeLoader) for it in folder.glob("*.yaml"))
        return [it for it in found if it.get("spec", {}).get("names", {}).get("kind") in self.kinds]

    @asynccontextmanager
    async def running(self, cluster: Cluster, folder: Path) -> AsyncIterator[None]:
        port = cluster.free_port()
        argv = [
            str(ensure_built(self.program).program(self.program)),
            f"--kubeconfig={cluster.kubeconfig}",
            f"--health-probe-bind-address=127.0.0.1:{port}",
            *self.arguments,
        ]
        program = Program(self.program, argv, {"ENABLE_INIT_CONTAINER_INJECTION": "false"})
        process = Process(program, folder / f"{self.program}.log")
        try:
            await ProductProcess(process, f"http://127.0.0.1:{port}/readyz").start()
            yield
            process.check()
        finally:
            await process.kill()


KUBERAY: Final = Operator(
    "ray-operator",
    "github.com/ray-project/kuberay/ray-operator",
    "config/crd/bases",
    frozenset({"RayCluster", "RayJob", "RayService"}),
    ("--metrics-addr=0", "--enable-leader-election=false"),
)
TRAINING: Final = Operator(
    "training-operator",
    "github.com/kubeflow/training-operator",
    "manifests/base/crds",
    frozenset({"PyTorchJob", "TFJob", "XGBoostJob", "MPIJob"}),
)
