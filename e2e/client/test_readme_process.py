"""The process in the README of trainer_kai does what it says."""

import re
import sys
from pathlib import Path
from typing import Final

from e2e.cluster.cluster import Cluster
from e2e.cluster.process import Process
from e2e.cluster.programs import Program
from e2e.cluster.resources import LEASES, PODS, Obj
from e2e.cluster.timeline import Moment
from e2e.fixtures.processes import as_slow_as_we_are
from tests.support.repository import ROOT

_README: Final = ROOT / "trainer_kai" / "README.md"
_LEASE: Final = "trainer-kai-scheduler"
_SETTINGS: Final = {  # quicker than usual, for a Lease that is missing is waited for
    "TRAINER_KAI_HEALTH_ADDRESS": "127.0.0.1",
    "TRAINER_KAI_HEALTH_PORT": "0",
    "TRAINER_KAI_LEADER_LEASE_S": "3",
    "TRAINER_KAI_LEADER_RENEW_DEADLINE_S": "2",
    "TRAINER_KAI_LEADER_RETRY_S": "0.3",
    "TRAINER_KAI_LEADER_WRITE_S": "0.8",
}


async def test_the_process_labels_every_pod(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """It reads settings and logs, leads, follows pods and writes; then it ends in order."""
    file = tmp_path / "process.py"
    file.write_text(_example())
    environment = {
        "PYTHONPATH": str(ROOT),
        "TRAINER_KAI_LEADER_NAMESPACE": namespace,
        **as_slow_as_we_are(_SETTINGS),
    }
    argv = [sys.executable, str(file), "--kubeconfig", str(cluster.kubeconfig)]
    process = Process(Program("process", argv, environment), tmp_path / "process.log")
    async with cluster.timeline(PODS, namespace=namespace) as seen:
        await cluster.api.create(_pod(namespace, "before"))
        process.start()
        try:
            await seen.until(lambda _: _labelled(seen.history()) == {"before"}, "one has a label")
            await cluster.api.create(_pod(namespace, "after"))
            await seen.until(
                lambda _: _labelled(seen.history()) == {"before", "after"}, "both have a label"
            )
            process.check()
            held = await cluster.api.get(LEASES, namespace, _LEASE)
            await process.stop()
        finally:
            await process.kill()

    released = await cluster.api.get(LEASES, namespace, _LEASE)
    assert held["spec"]["holderIdentity"]
    assert not released["spec"].get("holderIdentity")
    assert '"event": "process ends", "code": 0' in process.tail(1)[0]


def _example() -> str:
    found = re.search(r"```python\n(.*?)```", _README.read_text(), re.DOTALL)
    assert found is not None
    assert len(found[1].splitlines()) <= 40, "an example is to be short"
    return found[1]


def _pod(namespace: str, name: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "main", "image": "none"}],
        },
    }


def _labelled(history: list[Moment]) -> set[str]:
    return {it.key.name for it in history if "seen" in it.obj["metadata"].get("labels", {})}
