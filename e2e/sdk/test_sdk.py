"""The real Kubeflow SDK: trains, waits where its user sees it, is reclaimed, and completes."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.cluster.cluster import Cluster
from e2e.cluster.kwok_stages import RUN_SECONDS
from e2e.fixtures.installation import namespace_in, run_installation
from e2e.fixtures.trainjobs import WATCHED, let_finish, make_queue, was_suspended
from e2e.sdk.sdk_environment import sdk_path

_PROGRAM: Final = Path(__file__).with_name("user_program.py")
_LONG: Final = "600s"


class Sdk:
    """A process of the SDK, as its user has it in a notebook."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process: Final = process
        self.transcript: Final[list[str]] = []

    async def call(self, name: str, *arguments: Any) -> Any:
        answer = await self._answer(name, *arguments)
        assert "error" not in answer, answer
        return answer["result"]

    async def error(self, name: str, *arguments: Any) -> str:
        answer = await self._answer(name, *arguments)
        return str(answer["error"])

    async def train(self, queue: str, gpus: int = 8) -> str:
        return str(await self.call("train", queue, 1, _LONG, gpus, RUN_SECONDS))

    async def _answer(self, *call: Any) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(call).encode() + b"\n")
        line = await stdout.readline()
        self.transcript.append(f"{call[0]}{call[1:]} -> {line.decode().strip()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@asynccontextmanager
async def sdk(cluster: Cluster, namespace: str) -> AsyncIterator[Sdk]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", str(_PROGRAM), str(cluster.kubeconfig), namespace),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(sdk_path())},
    )
    it = Sdk(process)
    try:
        yield it
    finally:
        print("\n".join(it.transcript))
        process.kill()
        await process.wait()


@pytest.mark.soak
async def test_a_training_of_the_sdk_waits_is_reclaimed_and_completes(tmp_path: Path) -> None:
    """Its packages come from an index on the first run, so it is not part of every run."""
    async with run_installation("test-sdk", tmp_path, 1, 8) as shared:
        cluster = shared.cluster
        await make_queue(cluster, "owner", 8)
        await make_queue(cluster, "borrower", 0)
        await make_queue(cluster, "closed", 0)  # no namespace may use it
        async with (
            namespace_in(shared, "owner", "borrower") as ns,
            sdk(cluster, ns) as user,
            cluster.timeline(*WATCHED, namespace=ns) as seen,
        ):
            guest = await user.train("borrower")
            assert await user.call("wait", guest, "Running", 60) == "Running"

            waits = await user.train("borrower")
            assert "Timeout" in await user.error("wait", waits, "Running", 5)
            assert any("NoCapacity" in it for it in await user.call("events", waits))

            owner = await user.train("owner")
            assert await user.call("wait", owner, "Running", 60) == "Running"
            await seen.until(was_suspended(seen, guest), "the guest is evicted")
            assert (await user.call("status", guest))[0] == "Created"

            for name in (owner, guest, waits):
                await let_finish(cluster, seen, name, 1)
                assert await user.call("wait", name, "Complete", 60) == "Complete"

            wrong = await user.train("borower")
            assert "Timeout" in await user.error("wait", wrong, "Running", 5)
            text = " ".join(await user.call("events", wrong))
            assert "QueueMissing: Queue borower does not exist" in text
            assert "borrower (did you mean this one?)" in text

            closed = await user.error("train", "closed", 1, _LONG, 8, RUN_SECONDS)
            assert "may not use queue 'closed'" in closed
