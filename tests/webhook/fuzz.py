"""Sends broken reviews to a real server for as long as it is told: `python -m tests.webhook.fuzz`.

Real reviews are changed at random: bytes flipped, cut and doubled, fields dropped, types changed,
texts made huge or strange, nests made deep, numbers made extreme. The server runs in a process of
its own, so that its memory can be measured. Each must be answered in time and without a 5xx; what
answers at the end as at the beginning is a process that nothing harmed.
"""

import argparse
import asyncio
import copy
import io
import itertools
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp

from tests.support.machine_speed import slowdown_now
from tests.support.repository import ROOT
from tests.webhook.extreme_values import extreme
from tests.webhook.objects import BUNDLED, REVIEWS
from tests.webhook.served_webhook import serving, trainjob
from trainer_kai.api.decode import Page
from trainer_kai.api.kai_kinds import Queue, QueueSpec
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.resources import PRIORITY_CLASSES, QUEUES
from trainer_kai.kube.process.runner import run_loop
from trainer_kai.kube.rest.response import ErrorDetails, Unavailable
from trainer_kai.service.clock import SystemClock
from trainer_kai.service.log import configure
from webhook.cache.admission_cache import TrainJobSummary, summarize_trainjob
from webhook.cache.runtimes import RuntimeSummary
from webhook.reviews.answer_queue import QueueLookups
from webhook.reviews.answer_trainjob import AdmissionPolicy, LiveLookups
from webhook.rules.access_requests import QueueAccessRequest
from webhook.rules.queue_validate import SlimPodGroup

_IN_FLIGHT: Final = 8
_LONGEST: Final = 9 << 20
_ANSWER_S: Final = 8.0  # where the bounds in seconds were set
_EXTREME_S: Final = 3.0  # the shortest time-out by which the API server asks
_END_S: Final = 240.0  # of the wait for an answer
_GROWTH_MIB: Final = 48  # what the largest bodies under way at once may leave behind
_MOST_MIB: Final = 512  # at any time
_PATHS: Final = {
    "gpu": "/mutate/gpu-share",
    "jobset": "/mutate/jobset",
    "pod": "/mutate/pod",
    "queue": "/validate/queue",
    "trainjob": "/validate/trainjob",
    "workload": "/validate/workload",
}
_GOOD: Final = {"patched", "allowed", "denied with 503", "denied with 403"}  # 503: a lookup failed
_STRANGE: Final[tuple[Any, ...]] = (
    *(None, True, 0, -1, 2**63, 2**200, 1e308, "", "x" * 20_000, [], {}, [[]], {"": ""}),
    *("\x00", "\u202e\U0001f600", "a\r\nb: c", "../..", "~1/~0", "{{}}", "\u017f", "true", "v1"),
    *([None], [{"name": "node"}] * 50, {"kai.scheduler/queue": 7}, {"a": {"b": {"c": None}}}),
)


class Result(NamedTuple):
    answers: Counter[str]  # by status, or by what a review said
    longest_s: float
    extreme_s: float  # the longest answer to numbers that were made extreme
    mebibytes: tuple[float, float, float]  # of the server: warm, at the end, and the most it had
    slowdown: float  # of this machine, with what runs beside

    def check(self) -> None:
        bad = [it for it in self.answers if it[0] == "5" or it == "failed" or "no answer" in it]
        assert not bad, self.answers
        assert self.longest_s < _ANSWER_S * self.slowdown, f"an answer took {self.longest_s:.1f} s"
        assert self.extreme_s < _EXTREME_S * self.slowdown, (
            f"extreme numbers took {self.extreme_s:.1f} s"
        )
        before, after, most = self.mebibytes
        assert after - before < _GROWTH_MIB, f"from {before:.0f} to {after:.0f} MiB"
        assert most < _MOST_MIB, f"{most:.0f} MiB"


async def fuzz(seconds: float, seed: int, least: int = 0) -> Result:
    """Send broken reviews for so long, and at least so many."""
    chance, slowdown = random.Random(seed), slowdown_now()
    bodies = [(_PATHS[it.name.partition("-")[0]], it.read_bytes()) for it in _reviews()]
    answers: Counter[str] = Counter()
    longest_s: dict[bool, float] = {False: 0.0, True: 0.0}  # by whether numbers were extreme
    async with _server() as (url, pid, session):
        for path, body in bodies * 50:
            await _send(session, url + path, body)
        warm = _mib(pid, "VmRSS")
        until = time.monotonic() + seconds

        async def send_on() -> None:
            while time.monotonic() < until or answers.total() < least:
                path, body = chance.choice(bodies)
                is_extreme = chance.random() < 0.25
                sent = _extreme(body, chance) if is_extreme else _broken(body, chance)
                began = time.monotonic()
                answers[await _send(session, url + path, sent)] += 1
                longest_s[is_extreme] = max(longest_s[is_extreme], time.monotonic() - began)

        async with asyncio.TaskGroup() as group:
            for _ in range(_IN_FLIGHT):
                group.create_task(send_on())
        for path, body in bodies:
            outcome = await _send(session, url + path, body)
            assert outcome in _GOOD, f"a good review afterwards: {outcome}"
        memory = warm, _mib(pid, "VmRSS"), _mib(pid, "VmHWM")
        slowdown = max(slowdown, slowdown_now())
        return Result(answers, max(longest_s.values()), longest_s[True], memory, slowdown)


def _reviews() -> list[Path]:
    return sorted(REVIEWS.glob("*.json"))


async def _send(session: aiohttp.ClientSession, url: str, body: bytes) -> str:
    try:
        async with session.post(url, data=io.BytesIO(body)) as response:
            text = await response.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        return f"no answer: {type(error).__name__}"
    if response.status != 200:
        return str(response.status)
    outcome = json.loads(text)["response"]
    warnings = " ".join(outcome.get("warnings", ())) + outcome.get("status", {}).get("message", "")
    if "trainer-kai had an internal error" in warnings:
        return "failed"
    if not outcome["allowed"]:
        return f"denied with {outcome['status']['code']}"
    return "patched" if "patch" in outcome else "allowed"


@asynccontextmanager
async def _server() -> AsyncIterator[tuple[str, int, aiohttp.ClientSession]]:
    """Run a server in a process of its own; yield its address, its number and a session."""
    program = [sys.executable, "-m", "tests.webhook.fuzz", "--serve"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*program, cwd=ROOT, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).decode().strip()
        assert url, "the server did not start"
        connector = aiohttp.TCPConnector(ssl=False)  # its authority lives in its memory
        timeout = aiohttp.ClientTimeout(total=_END_S)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            yield url, process.pid, session
    finally:
        process.stdin.close()
        await process.wait()


async def _serve() -> None:
    """Answer until standard input ends; live reads succeed, find nothing or fail, by turns.

    So do the lookups for TrainJobs: access to a queue, and the queue that a runtime names.
    """
    configure(SystemClock(), layout="console", level="error")
    turns = itertools.count()

    async def read(key: Key) -> TrainJobSummary | None:
        turn = next(turns) % 3
        if turn == 0:
            raise Unavailable(ErrorDetails(f"GET {key}", 0, "", "no connection"))
        return summarize_trainjob(trainjob(queue="t")) if turn == 1 else None

    async def runtime(key: Key) -> RuntimeSummary:
        if next(turns) % 2:
            raise Unavailable(ErrorDetails(f"GET {key}", 0, "", "no connection"))
        return RuntimeSummary(queue="t")

    async def may_use(access_request: QueueAccessRequest) -> bool:
        if next(turns) % 3 == 0:
            raise Unavailable(ErrorDetails(f"ask {access_request.queue}", 0, "", "no connection"))
        return next(turns) % 2 == 0

    async def has_queue(_: str) -> bool:
        return True

    live = LiveLookups(runtime, may_use, has_queue)
    admission_policy = AdmissionPolicy(BUNDLED, "closed", denies_unknown_queues=True)
    async with serving(
        read,
        live=live,
        admission_policy=admission_policy,
        queues=_queue_lookups(turns),
        read_s=1.0,
    ) as served:
        served.cache.queues.mark_listed()
        for plural in (QUEUES.plural, PRIORITY_CLASSES.plural):
            served.cache.cluster.mark_listed(plural)
        print(served.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


def _queue_lookups(turns: Iterator[int]) -> QueueLookups:
    """Return lookups of queues and PodGroups that fail every third time."""

    async def queues() -> Mapping[str, Queue]:
        if next(turns) % 3 == 0:
            raise Unavailable(ErrorDetails("GET queues", 0, "", "no connection"))
        return {it: Queue(metadata=Meta(name=it), spec=QueueSpec(parent_queue="t")) for it in "tu"}

    async def podgroup_pages() -> AsyncIterator[Page[SlimPodGroup]]:
        if next(turns) % 3 == 0:
            raise Unavailable(ErrorDetails("GET podgroups", 0, "", "no connection"))
        yield Page()

    return QueueLookups(queues, podgroup_pages)


def _extreme(body: bytes, chance: random.Random) -> bytes:
    tree = json.loads(body)
    extreme(tree, chance)
    return json.dumps(tree).encode()


def _broken(body: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.3:
        return _broken_bytes(bytearray(body), chance)
    tree = json.loads(body)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        _break(tree, chance)
    try:
        return json.dumps(tree).encode()[:_LONGEST]
    except RecursionError:
        return body[:-3] + b"[" * 50_000


def _broken_bytes(body: bytearray, chance: random.Random) -> bytes:
    at = chance.randrange(len(body))
    match chance.randrange(4):
        case 0:
            for _ in range(chance.choice((1, 1, 3, 30))):
                body[chance.randrange(len(body))] = chance.randrange(256)
        case 1:
            del body[at:]
        case 2:
            del body[at : at + chance.choice((1, 10, 500))]
        case _:
            body[at:at] = chance.choice((b"\x00", b"[" * 50_000, b"{" * 9, b"\xff\xfe", body[:at]))
    return bytes(body)


def _break(tree: Any, chance: random.Random) -> None:
    """Change something in a tree: drop it, put something strange there, or much of it."""
    node = _start(tree, chance)
    while True:
        keys: list[Any] = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = chance.choice(keys)
        child = node[key]
        if isinstance(child, dict | list) and child and chance.random() < 0.85:
            node = child
            continue
        match chance.randrange(6):
            case 0:
                del node[key]
            case 1 | 2:
                node[key] = copy.deepcopy(chance.choice(_STRANGE))
            case 3:
                node[key] = _deep(chance.choice((5, 200, 700)), child)
            case 4 if isinstance(node, list):
                node += [child] * chance.choice((1, 30))
            case 4:
                node[chance.choice(("", "\ud800", "x" * 10_000, "~/"))] = child
            case _:
                node[key] = float("nan") if chance.random() < 0.3 else [child]
        return


def _start(tree: Any, chance: random.Random) -> Any:
    node = tree
    for key in ("request", chance.choice(("object", "object", "oldObject", "userInfo"))):
        child = node.get(key)
        if not isinstance(child, dict) or chance.random() < 0.1:
            break
        node = child
    return node


def _deep(levels: int, value: Any) -> Any:
    for _ in range(levels):
        value = {"spec": value} if levels % 2 else [value]
    return value


def _mib(pid: int, what: str) -> float:
    """Return what the kernel says that a process has, or had at most, in memory."""
    match = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match is not None
    return int(match[1]) / 1024


def main() -> None:
    """Run for so long, print what came of it and check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        run_loop(_serve())
        return
    result = run_loop(fuzz(options.seconds, options.seed))
    for answer, count in result.answers.most_common():
        print(f"{count:8} {answer}")
    before, after, most = result.mebibytes
    print(f"seed {options.seed}; the longest answer took {result.longest_s:.2f} s,")
    print(f"the longest to extreme numbers {result.extreme_s:.2f} s")
    print(f"memory: {before:.0f} MiB warm, {after:.0f} MiB at the end, {most:.0f} MiB at most")
    result.check()


if __name__ == "__main__":
    main()
