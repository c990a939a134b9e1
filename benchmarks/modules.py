"""How many modules of the scheduler a reader passes: from a pod to its bind, and in one reclaim.

A module counts if one of its functions is executed. The way of a pod begins where its watch event
is handed over and ends when its bind is answered; the scheduler is the real one, before an
API server in memory. The decision is a plan with allocate and reclaim in which a pod loses its GPU.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.state.objects import encode_objects, gang, group, node, pod, queue

_SCHEDULER: Final = "scheduler."
_LIMITS: Final = {"one pod, from its watch event to its bind": 75, "one reclaim decision": 30}


async def main() -> None:
    """Count both, and name the modules with `-v`."""
    table = Table(title="modules of the scheduler with an executed function")
    for heading in ("way", "modules", "at most"):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    # in a loop of asyncio's own: the clock of the harness looks into it
    pod_way = await asyncio.to_thread(lambda: asyncio.run(_pod_way()))
    counted = dict(zip(_LIMITS, (pod_way, _reclaim_way()), strict=True))
    for way, most in _LIMITS.items():
        table.add_row(way, str(len(counted[way])), str(most))
    Console(width=100).print(table)
    print(json.dumps({way: sorted(modules) for way, modules in counted.items()}, indent=1))
    assert all(len(counted[way]) <= most for way, most in _LIMITS.items())


async def _pod_way() -> set[str]:
    harness = SchedulerHarness()
    harness.api.put(node("a"), node("b"))
    async with harness.leading():
        await harness.advance(1)
        with _executed() as modules:
            harness.api.put(*gang("one", 1))
            await harness.advance(0.1)
        assert harness.api.node_of_pods() == {"one0": "a"}
    return modules


def _reclaim_way() -> set[str]:
    share = {"gpu": {"quota": 1, "limit": -1, "overQuotaWeight": 1}}
    objects = [queue(name, resources=share) for name in ("lender", "borrower")]
    for name in ("first", "second"):
        objects += [group(name, queue="borrower", minMember=1), pod(name, name, node="a")]
    objects += [group("waiting", queue="lender", minMember=1), pod("waiting", "waiting")]
    encoded = encode_objects(node("a", gpu=2), *objects)
    actions = {"preempt": False, "consolidation": False, "stalegangeviction": False}
    policies = build_policies(PolicySelection(actions=actions))
    with _executed() as modules:
        made = plan(encoded.snapshot, policies)
    assert len(made.evictions) == 1
    return modules


@contextmanager
def _executed() -> Iterator[set[str]]:
    """Collect the modules of which a function is called inside."""
    modules = set[str]()

    def called(frame: Any, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            module = frame.f_globals.get("__name__", "")
            if module.startswith(_SCHEDULER):
                modules.add(module)

    profile: Callable[[Any, str, Any], object] = called
    sys.setprofile(profile)
    try:
        yield modules
    finally:
        sys.setprofile(None)
