"""`kubectl trainer-kai`, as a user of a cloud runs it: with credentials from an exec plugin."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Final

from e2e.cluster.binaries import ensure_built
from e2e.cluster.cluster import Cluster

_API: Final = "client.authentication.k8s.io/v1"
_PROGRAMS: Final = Path(sys.executable).parent  # `make setup` installs the plugin here
_TRAINJOB: Final = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "mine"},
    "spec": {"runtimeRef": {"name": "torch-distributed"}},
}


async def test_kubectl_finds_the_plugin(cluster: Cluster, tmp_path: Path) -> None:
    """It reads a runtime of the cluster with the token that a program prints."""
    kubeconfig = _with_exec_plugin(cluster.kubeconfig, tmp_path)
    trainjob = tmp_path / "trainjob.yaml"
    trainjob.write_text(json.dumps(_TRAINJOB))

    listed = await _kubectl("plugin", "list")
    options = ("-f", str(trainjob), "--kubeconfig", str(kubeconfig))
    planned = await _kubectl("trainer-kai", "plan", *options)

    assert str(_PROGRAMS / "kubectl-trainer_kai") in listed
    start = "TrainJob default/mine   runtime ClusterTrainingRuntime torch-distributed"
    assert planned.startswith(start)
    assert (tmp_path / "ran").exists()


def _with_exec_plugin(kubeconfig: Path, folder: Path) -> Path:
    """Write a kubeconfig whose user has a program that prints the token, instead of the token."""
    content = json.loads(kubeconfig.read_text())
    [user] = content["users"]
    status = {"token": user["user"]["token"]}
    credential = {"apiVersion": _API, "kind": "ExecCredential", "status": status}
    program = folder / "login"
    program.write_text(f"#!/bin/sh\ntouch '{folder}/ran'\necho '{json.dumps(credential)}'\n")
    program.chmod(0o700)
    user["user"] = {"exec": {"apiVersion": _API, "command": str(program)}}
    changed = folder / "kubeconfig"
    changed.write_text(json.dumps(content))
    return changed


async def _kubectl(*arguments: str) -> str:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        str(ensure_built().program("kubectl")),
        *arguments,
        env={**os.environ, "PATH": f"{_PROGRAMS}{os.pathsep}{os.environ['PATH']}"},
        stdout=pipe,
        stderr=pipe,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode()
