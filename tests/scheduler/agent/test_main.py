"""The agent as a process: a stub of NVML below it, an API server with its pod beside it."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.scheduler.agent.agent_process import AgentProcess, environ_in_pod
from tests.scheduler.agent.nvml_stub import LIBRARY, build, stub_environ
from tests.scheduler.agent.pod_server import KEY, PATH, UID, PodServer
from tests.support.repository import ROOT

DEVICE: Final = "MIG-1c5e62a4-51ad-5b1e-9a3c-fb3c4f7d3f60"
DEVICES: Final = f"GPU-0a7dc3e1-7a5c-9f0b-6f53-19d1c2a3b4c5/,{DEVICE},,,,,"
POD: Final = f"{KEY[0]}/{KEY[1]}"
SLOW: Final = {"aiohttp", "kubernetes", "numpy", "prometheus_client", "pydantic", "uvloop"}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


async def test_it_writes_its_device_once_and_holds_it(library: Path, tmp_path: Path) -> None:
    """With the rights to get and to patch pods; a restarted container finds its annotation."""
    async with PodServer.open() as server:
        environ = environ_in_pod(server, tmp_path, POD_UID=UID, **stub_environ(library, DEVICES))
        async with AgentProcess.start(environ) as agent:
            line = await agent.until_logged("device reserved")
            [patch] = server.patches
            await _assert_it_stops(agent)
        async with AgentProcess.start(environ) as restarted:
            again = await restarted.until_logged("device reserved")
            await _assert_it_stops(restarted)

    assert server.asked == [f"GET {PATH}", f"PATCH {PATH}", f"GET {PATH}"]
    assert patch.headers["content-type"] == "application/merge-patch+json"
    assert json.loads(patch.body) == {
        "metadata": {"uid": UID, "annotations": {"run.ai/reserve_for_gpu_index": DEVICE}}
    }
    assert [(it["device"], it["pod"], it["patched"]) for it in (line, again)] == [
        (DEVICE, POD, True),
        (DEVICE, POD, False),
    ]


async def test_what_it_refuses(library: Path, tmp_path: Path) -> None:
    """Each with its message and exit code, before anything is asked of the API server."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / LIBRARY).write_text("not a library")
    async with PodServer.open() as server:
        two = environ_in_pod(server, tmp_path, **stub_environ(library, "GPU-a GPU-b"))
        without_nvml = {**two, "LD_LIBRARY_PATH": str(broken)}
        without_name = {**two, "POD_NAME": ""}
        ends = await asyncio.gather(*map(_end, (two, without_nvml, without_name)))

    assert server.asked == []
    (two_code, two_reason), (nvml_code, nvml_reason), (name_code, name_reason) = ends
    assert (two_code, nvml_code, name_code) == (1, 1, 2)
    assert two_reason.startswith("NVML shows 2 devices (GPU-a, GPU-b), but a reservation pod must")
    assert "NVIDIA_VISIBLE_DEVICES is not set" in two_reason
    assert nvml_reason.startswith("nvmlInit failed: NVML Shared Library Not Found")
    assert "libnvidia-ml.so.1 cannot be loaded" in nvml_reason
    assert name_reason.startswith("POD_NAME: is not set")


async def test_it_can_be_stopped_while_the_api_server_is_away(
    library: Path, tmp_path: Path
) -> None:
    """It would wait for as long as that takes, and says nothing for the first seconds."""
    async with PodServer.open() as server:
        server.unavailable = 1_000
        environ = environ_in_pod(server, tmp_path, **stub_environ(library, DEVICES))
        async with AgentProcess.start(environ) as agent:
            await server.until_asked(2)
            await _assert_it_stops(agent)


def test_it_imports_little() -> None:
    """There is one for each shared device, and pods wait for it to start."""
    code = f"import scheduler.agent.__main__, sys; print(*({SLOW!r} & sys.modules.keys()))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.split() == []


async def _assert_it_stops(agent: AgentProcess) -> None:
    """Stop an agent; that it runs until then is seen by its last line, which only a stop causes."""
    code = await agent.stop()
    assert (agent.lines[-1]["event"], code) == ("process ends", 0)


async def _end(environ: dict[str, str]) -> tuple[int, str]:
    """Run an agent to its end; return its exit code and the reason that it logged."""
    async with AgentProcess.start(environ) as agent:
        line = await agent.until_logged("no device reserved")
        return await agent.end(), line["reason"]
