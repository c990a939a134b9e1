"""Reviews of TrainJobs that name several queues, or one that is quite new."""

import time
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.webhook.judging import Elsewheres, ask, judging
from tests.webhook.objects import BUNDLED, QUEUE, Obj
from tests.webhook.serving import serving
from tests.webhook.trainjobs import OWN, patch, pod_patch, runtime, slim, submitted
from webhook.judge import Strictness


def _beside(queue: str, **spec: Any) -> Obj:
    """Return a TrainJob of the queue a, and of another for some of its pods."""
    return submitted({QUEUE: "a"}, runtimePatches=[patch(pod_patch(labels={QUEUE: queue}))], **spec)


async def test_all_queues_are_asked_about() -> None:
    """Pods that name another one could get into it by themselves."""
    async with judging() as (asked, there):
        assert (await ask(asked, _beside("b"))).code == 403
        assert [it.queue for it in there.wishes] == ["a", "a", "b", "b"]

        asked.cache.queues.put("c", "", "closed")
        there.runtimes[OWN] = runtime({"name": "node", **pod_patch(labels={QUEUE: "c"})})
        said = await ask(asked, submitted({QUEUE: "a"}, own=True))
        assert (said.code, said.message[:17]) == (403, "spec.runtimeRef: ")


async def test_many_queues_have_no_more_time_than_one() -> None:
    """A TrainJob with very many holds up no other, and is not answered late itself."""
    there = Elsewheres()
    there.takes_s = 0.05
    jobs = [pod_patch(f"p{i}", labels={QUEUE: f"q{i}"}) for i in range(60)]
    there.allowed = there.granted = {f"q{i}" for i in range(60)}
    async with judging(there, unannotated="closed") as (asked, _):
        there.runtimes[OWN] = runtime(*jobs)
        began_s = time.monotonic()
        said = await ask(asked, submitted(own=True))

        assert time.monotonic() - began_s < 2
        assert said.code == 503
        assert "no answer within 0.9 s" in said.message


# whether the API server answers, and which queue -> the code
QUEUES_MADE = [
    Case("made just before", (False, "new"), 0),
    Case("not made", (False, "other"), 422),
    Case("none that can be", (False, "a,b"), 422),
    Case("nobody there", (True, "new"), 422),
]


@pytest.mark.parametrize("case", QUEUES_MADE, ids=ids)
async def test_a_queue_of_which_we_have_not_heard(case: Case[tuple[bool, str], int]) -> None:
    """It is looked for once more before anybody is refused for it."""
    there = Elsewheres()
    there.is_away, queue = case.given
    strictness = Strictness(BUNDLED, refuses_unknown_queues=True)
    async with serving(live=there.live, strictness=strictness) as asked:
        asked.cache.queues.all_listed()
        asked.cache.put_runtime(slim({}))
        said = await ask(asked, submitted({QUEUE: queue}))

        assert (said.code, said.warnings) == (case.want, [])
