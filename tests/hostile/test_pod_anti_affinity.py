"""Anti-affinity of a pod keeps pods of other namespaces off no node."""

from typing import Final

import pytest

from tests.hostile.conftest import SimulateFixture
from tests.hostile.objects import TENANT, VICTIMS, Obj, cluster, pod, pod_group

_OS: Final = "kubernetes.io/os"


def _linux(objs: list[Obj]) -> list[Obj]:
    for it in objs:
        if it["kind"] == "Node":
            it["metadata"]["labels"][_OS] = "linux"
    return objs


def _alone(name: str, key: str, node: str = "") -> Obj:
    """Return a small pod that wants no other pod of any namespace in its domain."""
    found = pod(TENANT, name, 0, node=node)
    term = {"labelSelector": {}, "namespaceSelector": {}, "topologyKey": key}
    apart = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    found["spec"]["affinity"] = {"podAntiAffinity": apart}
    return found


@pytest.mark.parametrize(
    "hermits",
    [
        pytest.param([_alone("t", _OS, node="n0")], id="in the whole cluster"),
        pytest.param(
            [_alone(f"t{n}", "kubernetes.io/hostname") for n in range(2)], id="on each node"
        ),
    ],
)
def test_the_others_start_beside_it(hermits: list[Obj], simulate: SimulateFixture) -> None:
    """It may run, and is charged for what it asks for and nothing more."""
    gangs = [
        it
        for name in VICTIMS
        for it in (pod_group(name, "job", 8), *(pod(name, f"p{n}", 1, "job") for n in range(8)))
    ]
    found = simulate([*_linux(cluster()), *gangs, *hermits], cycles=2)
    started = [it for cycle in found.document["cycles"] for it in cycle["binds"]]
    assert sum(it["namespace"] in VICTIMS for it in started) == 16


def test_its_own_pods_still_keep_apart(simulate: SimulateFixture) -> None:
    """Of two pods of one namespace that want to be alone only one has the node."""
    found = simulate(
        [*cluster(nodes=1), _alone("a", "kubernetes.io/hostname"), pod(TENANT, "b", 0)]
    )
    assert len(found.binds) == 1


def test_it_goes_where_the_others_are_not(simulate: SimulateFixture) -> None:
    """What it asks for itself holds towards all namespaces."""
    found = simulate(
        [*cluster(), pod(VICTIMS[0], "v", 8, node="n0"), _alone("a", "kubernetes.io/hostname")]
    )
    assert found.binds == {f"{TENANT}/a": "n1"}
