"""The agent on a machine with one NVIDIA GPU: `python -m tests.scheduler.agent.on_a_gpu`.

It runs the agent with the library of the machine's driver, against an API server on loopback, and
compares the device in its patch with what nvidia-smi prints. Then it runs the agent on stubs of
the library that show no device and two, which it must refuse; without a C compiler it says that
it did not. It needs no cluster, and writes only to a temporary folder.
"""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.scheduler.agent.agent_process import AgentProcess, environ_in_pod
from tests.scheduler.agent.nvml_stub import build, stub_environ
from tests.scheduler.agent.pod_server import KEY, UID, PodServer

_DEVICE: Final = re.compile(r"\(UUID: (\S+)\)")
_ANNOTATION: Final = "run.ai/reserve_for_gpu_index"
_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"


async def main() -> int:
    """Print what the agent did and what the machine has; return 1 if they disagree."""
    listed = await asyncio.to_thread(_listed)
    with tempfile.TemporaryDirectory() as name:
        faults = [*await _on_the_device(Path(name), listed), *await _on_stubs(Path(name))]
    for fault in faults:
        print(f"FAULT: {fault}")
    print("FAILED" if faults else "the agent and the machine agree")
    return 1 if faults else 0


def _listed() -> list[str]:
    """Return the devices that nvidia-smi lists; where it lists MIG devices, these alone."""
    command = ["nvidia-smi", "-L"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    print(f"{' '.join(command)}:\n{done.stdout}")
    found = _DEVICE.findall(done.stdout)
    return [it for it in found if it.startswith("MIG-")] or found


async def _on_the_device(folder: Path, listed: list[str]) -> list[str]:
    """Run the agent twice on the real library: the second one finds the annotation."""
    faults = []
    async with PodServer.open() as server:
        environ = environ_in_pod(server, folder, POD_UID=UID)
        if _VISIBLE in os.environ:
            environ[_VISIBLE] = os.environ[_VISIBLE]
        faults += await _reserve(environ, "first start")
        sent = [it.body.decode() for it in server.patches]
        print(f"sent: {sent}\nannotations of {KEY[1]}: {server.annotations}")
        faults += await _reserve(environ, "second start")
        print(f"requests of both: {server.asked}")
    if len(sent) != 1 or len(server.patches) != 1:
        faults.append(f"{len(server.patches)} patches instead of 1, of the first start")
    if len(listed) != 1:
        faults.append(f"nvidia-smi lists {len(listed)} devices: run this where it lists 1")
    elif server.annotations != {_ANNOTATION: listed[0]}:
        faults.append(f"the annotations are not the device {listed[0]}: {server.annotations}")
    return faults


async def _reserve(environ: Mapping[str, str], title: str) -> list[str]:
    """Run an agent until it has its device, measure it, and stop it."""
    began_s = time.monotonic()
    async with AgentProcess.start(environ) as agent:
        try:
            line = await agent.until_logged("device reserved")
        except AssertionError as error:
            return [f"{title}: {error}"]
        took_s = time.monotonic() - began_s
        memory = _memory(agent.pid)
        began_s = time.monotonic()
        code = await agent.stop()
        stopped_s = time.monotonic() - began_s
    print(f"{title}: {took_s:.2f} s until reserved, {memory}; it stopped in {stopped_s:.3f} s")
    print(f"  {line}")
    if code:
        return [f"{title}: SIGTERM ended it with code {code}"]
    return []


def _memory(pid: int) -> str:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.findall(r"^(VmHWM|VmRSS|RssAnon|RssFile):\s+(\d+) kB$", status, re.MULTILINE)
    return ", ".join(f"{name} {int(kib) / 1024:.1f} MiB" for name, kib in found)


async def _on_stubs(folder: Path) -> list[str]:
    if not shutil.which("cc") and not shutil.which("gcc"):
        print("no C compiler: the refusals were not tried")
        return []
    library = build(folder)
    faults = []
    async with PodServer.open() as server:
        for devices in ("", "GPU-a GPU-b", "GPU-a/MIG-1,MIG-2"):
            environ = environ_in_pod(server, folder, **stub_environ(library, devices))
            async with AgentProcess.start(environ) as agent:
                reason = (await agent.until_logged("no device reserved"))["reason"]
                code = await agent.end()
            print(f'stub with "{devices}": code {code}: {reason}')
            if code != 1 or server.asked:
                faults.append(f'"{devices}" was not refused: code {code}, sent {server.asked}')
    return faults


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
