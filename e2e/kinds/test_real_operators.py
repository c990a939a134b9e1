"""The same life as in `test_table`, with KubeRay and Kubeflow's training operator v1 themselves."""

import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from e2e.cluster.binaries import ensure_built
from e2e.conftest import failed
from e2e.fixtures.installation import Installation, namespace_in
from e2e.kinds.conftest import installed_beside_kube_scheduler
from e2e.kinds.life import live
from e2e.kinds.operators import KUBERAY, TRAINING, Operator
from e2e.kinds.workloads import ROWS, KindRow

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]  # the first run builds the operators

_BY_KIND: Final = {it.resource.kind: it for it in ROWS}


def _pytorch_job() -> KindRow:
    """Return the row with the container name that the operator looks for."""
    row = _BY_KIND["PyTorchJob"]
    spec = copy.deepcopy(row.spec)
    for role in spec["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["containers"][0]["name"] = "pytorch"
    return row._replace(spec=spec)


REAL: Final = ((KUBERAY, _BY_KIND["RayCluster"]), (TRAINING, _pytorch_job()))


@pytest_asyncio.fixture(params=REAL, ids=lambda it: it[0].program, loop_scope="session")
async def real_installation(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[Installation, KindRow]]:
    operator: Operator
    operator, row = request.param
    ensure_built("kube-scheduler", operator.program)
    kinds = operator.read_definitions()
    async with (
        installed_beside_kube_scheduler("test-real", tmp_path, kinds) as installation,
        operator.running(installation.cluster, tmp_path),
    ):
        yield installation, row
        if failed(request.node):
            installation.cluster.keep_logs()


async def test_a_real_operator(
    real_installation: tuple[Installation, KindRow], kind_table: list[tuple[str, ...]]
) -> None:
    installation, row = real_installation
    async with namespace_in(installation, "owner", "borrower") as namespace:
        kind_table.append(await live(installation.cluster, namespace, row, None))
