"""What a tenant stores, sends or holds open: the webhook stays small, and answers the others."""

import asyncio
import json
import ssl
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from typing import Any, Final

import msgspec
import pytest
from aiohttp import web

from tests.hostile.conftest import MAX_MIB
from tests.hostile.webhook_process import VICTIM
from tests.support.repository import ROOT
from tests.webhook.objects import BUNDLED, JOBSET, POD, jobset, pod, recorded, review
from webhook.admission.review import UNCHANGED, AdmissionRequest, AdmissionResponse, read_review
from webhook.rules.jobset_mutate import read_jobset
from webhook.rules.trainjob_validate import read_trainjob

_TRAINER: Final = "/apis/trainer.kubeflow.org/v1alpha1/"
_MANY: Final = 2_000
_LONG: Final = "x" * 250_000


class _Stored:
    """An API server that stores many large objects of a tenant, and a small one of a team."""

    def __init__(self, **large: Any) -> None:
        self.lists: Counter[str] = Counter()  # that were read to their end
        self.followed: Counter[str] = Counter()
        self._large = {_TRAINER + plural: json.dumps(text) for plural, text in large.items()}

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a list by its page, and go on with a watch for ever."""
        if "watch" in request.query:
            self.followed[request.path] += 1
            await asyncio.Event().wait()
        begin, most = int(request.query.get("continue", 0)), int(request.query["limit"])
        stored = self._items(request.path)
        rest = str(begin + most) if begin + most < len(stored) else ""
        head = json.dumps({"resourceVersion": "1", "continue": rest}).encode()
        is_job = request.path.endswith("trainjobs")
        items = b",".join(_written(*it, is_job=is_job) for it in stored[begin : begin + most])
        self.lists[request.path] += not rest
        return web.Response(body=b'{"metadata":%b,"items":[%b]}' % (head, items))

    def _items(self, path: str) -> list[tuple[str, str, str]]:
        if not path.startswith(_TRAINER):
            return []
        large = self._large.get(path)
        many = [("tenant", f"n{number}", large) for number in range(_MANY)] if large else []
        return [*many, (*VICTIM, '"small"')]


def _written(namespace: str, name: str, text: str, *, is_job: bool) -> bytes:
    meta = f'"namespace":"{namespace}","name":"{name}","uid":"{name}","resourceVersion":"1"'
    if is_job:
        notes = f'"annotations":{{"kai.scheduler/topology":{text}}}'
        return f'{{"metadata":{{{meta},{notes}}},"spec":{{}}}}'.encode()
    template = f'{{"metadata":{{"labels":{{"kai.scheduler/queue":{text}}}}}}}'
    return f'{{"metadata":{{{meta}}},"spec":{{"template":{template}}}}}'.encode()


@asynccontextmanager
async def _child(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    program = [sys.executable, "-m", "tests.hostile.webhook_process", *arguments]
    child = await asyncio.create_subprocess_exec(*program, cwd=ROOT, stdin=pipe, stdout=pipe)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


@pytest.mark.parametrize("plural", ["trainjobs", "trainingruntimes"])
async def test_what_a_tenant_stores_fills_no_cache(plural: str) -> None:
    """2,000 objects of 250 KB are listed, followed and read anew; the team's are still known."""
    stored = _Stored(**{plural: _LONG})
    runner = web.ServerRunner(web.Server(stored.answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    async with _child("follow", f"http://127.0.0.1:{port}") as child:
        assert child.stdin is not None
        assert child.stdout is not None
        async with asyncio.timeout(60):
            runtimes = [_TRAINER + it for it in ("trainingruntimes", "clustertrainingruntimes")]
            while (
                min(stored.followed[it] for it in runtimes) < 1
                or min(stored.lists[it] for it in runtimes) < 2
                or stored.followed[_TRAINER + "trainjobs"] < 1
            ):
                assert child.returncode is None
                await asyncio.sleep(0.05)
        child.stdin.close()
        peak_mib, cpu_s, is_known = json.loads(await child.stdout.readline())
        print(f"{plural}: {peak_mib} MiB, {cpu_s:.1f} s of CPU")
    await runner.cleanup()
    assert is_known
    assert peak_mib < MAX_MIB


_API_SERVER: Final = "127.0.0.1"
_PODS: Final = ("127.0.0.2", "127.0.0.3")  # of the tenant
_CLOSED_S: Final = 60.0  # shorter than what ends an idle connection
_MIB: Final = 1 << 20


class _Served:
    """A webhook in a process of its own, and connections to it from several addresses."""

    def __init__(self, port: int, stack: AsyncExitStack) -> None:
        self._port = port
        self._stack = stack
        self._tls = ssl.create_default_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE

    async def connect(
        self, peer: str, *, is_silent: bool = False
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect from an address; a silent one does not even shake hands."""
        tls = None if is_silent else self._tls
        reader, writer = await asyncio.open_connection(
            _API_SERVER, self._port, ssl=tls, local_addr=(peer, 0)
        )
        self._stack.enter_context(closing(writer))
        return reader, writer

    async def review(self, path: str, body: bytes) -> None:
        """Send a review on a new connection, as the API server, and see it answered."""
        reader, writer = await self.connect(_API_SERVER)
        writer.write(_head(path, len(body)) + body)
        status = await reader.readline()
        assert b" 200 " in status, status
        writer.close()

    async def is_answered(self) -> None:
        """See that reviews of the API server are answered, a large one too."""
        large = review(pod(annotations={"x": "y" * 3 * _MIB}), POD)
        for path, body in (
            ("/mutate/jobset", review(jobset(), JOBSET)),
            ("/mutate/pod", large),
        ):
            await self.review(path, body)


def _head(path: str, length: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()


@asynccontextmanager
async def _served(read_s: float = 600) -> AsyncIterator[_Served]:
    """Run a webhook; at the end it has never had more than 512 MiB.

    It waits for a request so long that a review would not be answered before.
    """
    async with _child("serve", f"{read_s}") as child, AsyncExitStack() as stack:
        assert child.stdin is not None
        assert child.stdout is not None
        yield _Served(int(await child.stdout.readline()), stack)
        child.stdin.close()
        peak_mib = int(await child.stdout.readline())
        print(f"{peak_mib} MiB")
        assert peak_mib < MAX_MIB


async def test_idle_connections_keep_no_review_out() -> None:
    """Of 700 that a pod opens those above the limit are closed again, and reviews are answered."""
    async with _served() as served:
        first, _ = await served.connect(_PODS[0])
        for number in range(700):
            await served.connect(_PODS[0], is_silent=number % 4 > 0)
        await served.is_answered()
        assert await asyncio.wait_for(first.read(), _CLOSED_S) == b""


async def test_unfinished_bodies_keep_no_review_out() -> None:
    """20 of 16 MiB are refused; of many that are short enough, some are waited for at a time."""
    async with _served() as served, asyncio.TaskGroup() as group:

        async def send(peer: str, length: int) -> None:
            with suppress(ConnectionError):  # it is the first to give way
                reader, writer = await served.connect(peer)
                writer.write(_head("/mutate/pod", length) + b" " * (length - 1))
                assert b" 200 " not in await reader.readline()

        tasks = [group.create_task(send(_PODS[0], 16 * _MIB)) for _ in range(20)]
        for peer in _PODS:
            tasks += [group.create_task(send(peer, 8 * _MIB)) for _ in range(20)]
        for _ in range(2):
            await asyncio.sleep(0.25)
            await served.is_answered()
        for task in tasks:
            task.cancel()


def test_a_jobset_of_a_million_parts_is_not_read() -> None:
    """In memory it has 126 MiB, while its TrainJob is read; one that exists is let alone."""
    many: dict[str, Any] = {"containers": [{}] * 1_000_000}
    spec = {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": {"spec": many}}}}]}
    asked = read_review(review({**jobset(), "spec": spec}, JOBSET))
    foreign = read_review(review({**jobset(ownerReferences=[]), "spec": spec}, JOBSET))
    assert isinstance(asked, AdmissionRequest)
    assert isinstance(foreign, AdmissionRequest)

    answer = read_jobset(asked, BUNDLED)

    assert isinstance(answer, AdmissionResponse)
    assert answer.denial is not None
    assert answer.denial.code == 422
    assert "may have at most 50000 and 125000" in answer.denial.message
    assert read_jobset(foreign, BUNDLED) == UNCHANGED
    assert read_jobset(msgspec.structs.replace(asked, operation="UPDATE"), BUNDLED) == UNCHANGED


def test_a_trainjob_of_a_million_parts_is_not_read() -> None:
    """Neither when it is made nor when it grows; one that was so large before is let alone."""
    text = recorded("trainjob-create").replace(
        b'"runtimeRef"', b'"runtimePatches":[%b],"runtimeRef"' % b",".join([b"{}"] * 1_000_000), 1
    )
    asked = read_review(text)
    assert isinstance(asked, AdmissionRequest)
    small = msgspec.Raw(b'{"metadata":{"name":"a"}}')
    replace = msgspec.structs.replace

    for request in (asked, replace(asked, operation="UPDATE", old_object=small)):
        answer = read_trainjob(request)
        assert isinstance(answer, AdmissionResponse)
        assert answer.denial is not None
        assert answer.denial.code == 422
    same = replace(asked, operation="UPDATE", old_object=asked.object)
    assert read_trainjob(same) == UNCHANGED


async def test_slow_headers_keep_no_connection() -> None:
    """A request that does not go on is not waited for."""
    async with _served(read_s=0.5) as served:
        reader, writer = await served.connect(_PODS[0])
        writer.write(b"POST /mutate/pod HTTP/1.1\r\n")
        assert await asyncio.wait_for(reader.read(), _CLOSED_S) == b""
