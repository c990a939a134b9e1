"""The example in the README of trainer_kai/kube does what it says."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from e2e.cluster import resources
from e2e.cluster.cluster import Cluster
from e2e.cluster.patience import until
from e2e.conftest import make_namespace, next_name
from tests.support.repository import ROOT

_README: Final = ROOT / "trainer_kai" / "kube" / "README.md"


async def test_the_example_prints_every_change_once(
    damaged_cluster: Cluster, tmp_path: Path
) -> None:
    """Pods are made, changed and deleted before and after the API server is killed."""
    namespace = next_name()
    await make_namespace(damaged_cluster, namespace)
    program = tmp_path / "example.py"
    program.write_text(_example())
    async with _running(program, damaged_cluster.kubeconfig) as printed:
        await _until(printed, "synced")
        await _make(damaged_cluster, namespace, "a", "b")
        labels = {"metadata": {"labels": {"k": "v"}}}
        await damaged_cluster.api.merge(resources.PODS, namespace, "a", labels)
        await _until(printed, f"modified {namespace}/a")

        await damaged_cluster.restart_api_server()
        await _make(damaged_cluster, namespace, "c")
        await _until(printed, f"added {namespace}/c")
        await damaged_cluster.api.delete(resources.PODS, namespace, "b")
        await _until(printed, f"deleted {namespace}/b")

        assert [line for line in printed if f" {namespace}/" in line] == [
            f"added {namespace}/a",
            f"added {namespace}/b",
            f"modified {namespace}/a",
            f"added {namespace}/c",
            f"modified {namespace}/b",  # marked for deletion, and then deleted
            f"deleted {namespace}/b",
        ]


def _example() -> str:
    found = re.search(r"```python\n(.*?)```", _README.read_text(), re.DOTALL)
    assert found is not None
    assert len(found[1].splitlines()) <= 30, "an example is to be short"
    return found[1]


@asynccontextmanager
async def _running(program: Path, kubeconfig: Path) -> AsyncIterator[list[str]]:
    """Run a program; what it printed so far is in the list."""
    environment = {"PYTHONPATH": str(ROOT), "KUBECONFIG": str(kubeconfig)}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-u", program, env=environment, stdout=pipe
    )
    assert process.stdout is not None
    printed: list[str] = []
    reading = asyncio.create_task(_read(process.stdout, printed))
    try:
        yield printed
    finally:
        process.kill()
        await process.wait()
        await reading


async def _read(output: asyncio.StreamReader, printed: list[str]) -> None:
    while line := await output.readline():
        printed.append(line.decode().rstrip())


async def _until(printed: list[str], line: str) -> None:
    await until(lambda: line in printed, f"it prints {line!r}", 60)


async def _make(cluster: Cluster, namespace: str, *names: str) -> None:
    for name in names:
        await cluster.api.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"namespace": namespace, "name": name},
                "spec": {
                    "schedulerName": "nobody",
                    "containers": [{"name": "main", "image": "none"}],
                },
            }
        )
