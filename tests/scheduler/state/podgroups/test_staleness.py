"""From when on a PodGroup is stale."""

from dataclasses import replace
from typing import Any

import pytest

from scheduler.state.inputs import StateOptions
from scheduler.state.snapshot.cluster_state import encode
from tests.support.case import Case, ids
from tests.support.state.objects import (
    JOBSET,
    cluster_cache,
    group,
    jobset_pod,
    make_object,
    node,
    pod,
    queue,
)
from trainer_kai.api.meta import Key

Fields = dict[str, Any]

STALE_SINCE_CASES = 1767603600  # 2026-01-05T09:00:00Z
STALE_SINCE = {"kai.scheduler/stale-podgroup-timestamp": "2026-01-05T09:00:00Z"}
TERMINATING: Fields = {"deletionTimestamp": "2026-01-05T08:59:59Z"}


def incomplete(*pods: Fields, note: str = "", **spec: Any) -> list[Fields]:
    """Return a PodGroup of three with a stale-since annotation and two pods."""
    meta: Fields = {"annotations": {next(iter(STALE_SINCE)): note} if note else STALE_SINCE}
    running = [pod(f"g{i}", "g", node="n") for i in range(2)]
    return [group("g", meta=meta, minMember=3, **spec), *running, *pods]


def of_jobset(*, suspend: bool) -> list[Fields]:
    subs = [{"name": "n-replica-0", "minMember": 2}]
    owned = group(
        "g", meta={"ownerReferences": [JOBSET], "annotations": STALE_SINCE}, subGroups=subs
    )
    jobset = make_object("JobSet", "j", {"uid": "u"}, spec={"suspend": suspend})
    return [owned, jobset, jobset_pod("a", "g", "n", node="n")]


CASES: list[Case[tuple[list[Fields], int], int | None]] = [
    Case("after the usual grace", (incomplete(), 60), STALE_SINCE_CASES + 60),
    Case("never, if that is usual", (incomplete(), -1), None),
    Case("after its own", (incomplete(stalenessGracePeriod="90m"), 60), STALE_SINCE_CASES + 5400),
    Case("never, if it says so", (incomplete(stalenessGracePeriod="-1s"), 60), None),
    Case(
        "not before the whole second",
        (incomplete(stalenessGracePeriod="1500ms"), 60),
        STALE_SINCE_CASES + 2,
    ),
    Case("at once", (incomplete(note="no time", stalenessGracePeriod="0s"), 60), 0),
    Case("not yet, with an invalid annotation", (incomplete(note="no time"), 60), None),
    Case(
        "not, with a pod that is going",
        (incomplete(pod("x", "g", node="n", meta=TERMINATING)), 60),
        None,
    ),
    Case("though one waits", (incomplete(pod("x", "g")), 60), STALE_SINCE_CASES + 60),
    Case(
        "though one has failed",
        (incomplete(pod("x", "g", phase="Failed")), 60),
        STALE_SINCE_CASES + 60,
    ),
    Case("not, with one that is done", (incomplete(pod("x", "g", phase="Succeeded")), 60), None),
    Case("not, with all it needs", (incomplete(pod("x", "g", node="n")), 60), None),
    Case("nor before it begins", ([group("g", minMember=3), pod("x", "g")], 60), None),
    Case("if it goes on", (of_jobset(suspend=False), 60), STALE_SINCE_CASES + 60),
    Case("not if its pods are not replaced", (of_jobset(suspend=True), 60), None),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_when(case: Case[tuple[list[Fields], int], int | None]) -> None:
    """It is stale when its grace period since the annotated time is over."""
    objects, grace_s = case.given
    options = StateOptions(now=STALE_SINCE_CASES, staleness_grace_s=grace_s)

    (podgroup,) = encode(cluster_cache(node("n"), queue("q"), *objects), options).snapshot.podgroups

    assert podgroup.stale_at == case.want


# With an observation from 100 s before the annotation
OBSERVED: list[Case[list[Fields], int | None]] = [
    Case("while the missing pod waits", incomplete(pod("x", "g")), STALE_SINCE_CASES - 40),
    Case(
        "though the lost pod terminates",
        incomplete(pod("x", "g"), pod("y", "g", node="n", meta=TERMINATING)),
        STALE_SINCE_CASES - 40,
    ),
    Case(
        "after its own grace",
        incomplete(pod("x", "g"), stalenessGracePeriod="1500ms"),
        STALE_SINCE_CASES - 98,
    ),
    Case("never, if it says so", incomplete(pod("x", "g"), stalenessGracePeriod="-500ms"), None),
    Case("not while the missing pod does not exist", incomplete(), None),
    Case("not, with all it needs", incomplete(pod("x", "g", node="n")), None),
]


@pytest.mark.parametrize("case", OBSERVED, ids=ids)
def test_when_the_scheduler_has_observed_it(case: Case[list[Fields], int | None]) -> None:
    """The annotation does not count, and what was observed only as long as it is still so."""
    options = StateOptions(now=STALE_SINCE_CASES, observes_staleness=True)
    cluster = cluster_cache(node("n"), queue("q"), *case.given)
    observed = replace(cluster, stale_since={Key("ns", "g"): STALE_SINCE_CASES - 100})

    (unobserved,) = encode(cluster, options).snapshot.podgroups
    (podgroup,) = encode(observed, options).snapshot.podgroups

    assert unobserved.stale_at is None
    assert podgroup.stale_at == case.want
