"""A simulation as people see it: all of it within 100 columns."""

import json
import re
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.workloads.simulate_objects import (
    group,
    node,
    pod,
    queue,
    staged_trainjob,
    trainjob,
)
from trainer_kai.api.names import JOBSET_NAME
from trainer_kai.cli.commands.simulate.simulation import (
    SimulationOptions,
    SimulationResult,
    prepare,
    run,
)
from trainer_kai.cli.commands.simulate.text_output import as_text
from trainer_kai.cli.input.documents import Document

NOW = "2026-01-05T09:00:00Z"
BUSY = [
    queue("research", 16),
    queue("team-a", 6, parent="research", creationTimestamp=NOW),
    queue("team-b", 10, parent="research", limit=12),
    *(node(f"node-{i}", 4) for i in range(1, 5)),
    node("bare", 0),
    *staged_trainjob(4),
    group("big", 2, "team-b"),
    *(pod(f"big-{i}", "big", 4) for i in range(2)),
    group("old", 1, "team-b"),
    pod("old-0", "old", 4, on="node-4", deletionTimestamp=NOW),
    group("quick", 4, "team-b"),
    *(pod(f"quick-{i}", "quick", 1, on=f"node-{1 + i % 2}") for i in range(4)),
    group("lost", 1, "nobody"),
    pod("lost-0", "lost", 1),
]
SHOWN = """\
GPUS       QUOTA   LIMIT   FAIR SHARE   USED   OVER QUOTA   WAITING
research   16      -       16           13     -            8
  team-a   6       -       5            5      -            0
  team-b   10      12      11           8      -            8

PODGROUP             QUEUE    PLACED   WAITING   REASON
default/big          team-b   0        2         ExceedsLimit
  Queue team-b has a limit of 12 GPU and uses 8 GPU; the PodGroup requests 8 GPU more. It cannot
  start before pods of queue team-b release 4 GPU or its limit is raised to 16 GPU. After that it
  can start when the nodes that it fits have enough free for 2 of its pods (8 GPU)
default/lost         nobody   0        1         QueueMissing
  Queue nobody does not exist. It cannot start before queue nobody is created, or before it names
  another queue (suspend its workload, change the label kai.scheduler/queue, and resume it): team-a,
  team-b
default/old          team-b   1        0         -
default/pg-job-UID   team-a   4        0         -
default/quick        team-b   4        0         -

NODES   # used or nominated   = reserved   ~ terminating   . idle   (1 without GPUs)
node-1  [###=]   node-2  [####]   node-3  [#...]   node-4  [####]

CYCLE 1   4 bound, 1 reserved, 2 PodGroups waiting
  bound to node-1: default/job-node-0-0
  bound to node-2: default/job-node-0-1, default/job-node-0-2
  bound to node-3: default/job-node-0-3
  reserved on node-1: 1 for launcher-replica-0 of default/pg-job-UID

CYCLE 2   1 bound, 1 reserved, 2 PodGroups waiting
  bound to node-4: default/old-0
  reserved on node-1: 1 for launcher-replica-0 of default/pg-job-UID

CYCLES 3 to 5   1 reserved, 2 PodGroups waiting
  reserved on node-1: 1 for launcher-replica-0 of default/pg-job-UID
"""


def drawn(*objects: dict[str, Any], cycles: int = 1) -> str:
    options = SimulationOptions(cycles=cycles, actions=("allocate",))
    cluster = prepare((Document("a.yaml", it) for it in objects), options)
    return as_text(run(cluster, options))


def test_the_whole_picture() -> None:
    """Queues as a tree, PodGroups with their reasons, nodes as bars, and the cycles."""
    assert drawn(*BUSY, cycles=5) == SHOWN.rstrip()


def test_names_are_cut_only_where_there_is_no_room() -> None:
    """Nothing is wider than 100 columns, however long it is called."""
    long = "n" * 120
    wide = drawn(
        queue(long, 4),
        node(long, 8),
        group(long, 1, long),
        pod(long, long, 1),
        *staged_trainjob(),
    )

    assert max(map(len, wide.splitlines())) <= 100
    assert "…" in wide
    assert f"default/{'g' * 40} " in drawn(group("g" * 40), pod("p", "g" * 40))


def test_a_name_that_would_break_its_line_is_written_as_in_python() -> None:
    """Names that a cluster refuses may be in a file."""
    lines = drawn(group("a\nb\u2028c"), pod("p", "a\nb\u2028c")).splitlines()

    assert [line for line in lines if line.startswith(r"default/a\nb\u2028c ")]


def test_sentences_are_no_wider_than_the_terminal() -> None:
    """Names are not cut for that."""
    cluster = prepare((Document("a.yaml", it) for it in BUSY), SimulationOptions())
    text = as_text(run(cluster, SimulationOptions()), 60)

    reasons = [line for line in text.splitlines() if line.startswith("  ") and " GPU" in line]
    assert len(reasons) >= 3
    assert max(map(len, reasons)) <= 60


def test_a_podgroup_without_a_reason_says_what_it_waits_for() -> None:
    """Its pods come later, or room is being released for them."""
    going = pod("going", gpus=4, on="n", deletionTimestamp=NOW)
    step = {"replicatedJob": "data", "status": "Complete", "subGroupPrefix": "data-replica-"}
    anticipated = json.dumps({"after": [{**step, "group": "data", "replicas": 1, "count": 1}]})
    main = group("main", 1)
    main["metadata"]["annotations"] = {"trainer-kai.dev/anticipated": anticipated}

    text = drawn(
        queue("team-a"),
        node("n", 4),
        going,
        group("g"),
        pod("p", "g", 4),
        main,
        group("nobody"),
    )

    lines = [line.strip() for line in text.splitlines()]
    assert "1 pod is nominated, and starts when its node has released the resources" in lines
    assert (
        "It has no pods yet: they are created when data is Complete, and are not planned before"
        in lines
    )
    assert "It has no pods" in lines


_EVICTED_TEXT = {
    "trainJob": "job",
    "podGroup": "pg-job",
    "why": "default/b gets its resources",
    "at": NOW,
}
_RECORD = {"trainer-kai.dev/evicted-by": json.dumps(_EVICTED_TEXT)}
_OF_JOB = {
    "name": "pg-job",
    "namespace": "default",
    "uid": "pg-job",
    "labels": {JOBSET_NAME: "job"},
}
_SUSPENDED: list[Case[dict[str, Any], str]] = [
    Case(
        "by us",
        {"annotations": _RECORD},
        "The scheduler evicted the TrainJob: default/b gets its resources. The scheduler resumes "
        "it",
    ),
    Case(
        "by Kueue",
        {"labels": {"kueue.x-k8s.io/queue-name": "lab"}},
        "spec.suspend is true, and a label names Kueue queue lab. If Kueue runs in the cluster, it",
    ),
    Case("by a user", {}, "spec.suspend is true. To start it, set spec.suspend to false"),
]


@pytest.mark.parametrize("case", _SUSPENDED, ids=ids)
def test_the_cause_of_a_suspension_is_reported(case: Case[dict[str, Any], str]) -> None:
    """By its PodGroup, which has no pods."""
    job = trainjob("job", "torch")
    job["metadata"] |= {"uid": "job", **case.given}
    job["spec"]["suspend"] = True
    owned = {**group("pg-job"), "metadata": {**_OF_JOB, **case.given, "labels": _OF_JOB["labels"]}}

    text = drawn(queue("team-a"), node("n"), owned, job)

    others = [group(f"other-{i}") for i in range(60)]
    many = drawn(queue("team-a"), owned, job, *others)
    assert "default/pg-job " in many
    one_line = " ".join(text.split())
    assert f"default/pg-job team-a 0 0 - It is suspended: {case.want}" in one_line


def test_what_is_going_and_what_is_promised_is_reported() -> None:
    """Neither is placed: the one has its room still, and the other waits for it."""
    borrowed = [group("a"), pod("a-0", "a", 4, on="n"), group("b", queue="team-b"), pod("b-0", "b")]
    objects = [queue("team-a", 0), queue("team-b", 4), node("n", 4), *borrowed]
    cluster = prepare((Document("a.yaml", it) for it in objects), SimulationOptions(stats=True))

    lines = as_text(run(cluster, SimulationOptions(stats=True))).splitlines()

    at = lines.index("default/a   team-a   0        0         -")
    assert lines[at + 1 : at + 4] == [
        "  1 pod is evicted. Evicted pods count neither as placed nor as waiting",
        "default/b   team-b   0        1         -",
        "  1 pod is nominated, and starts when its node has released the resources",
    ]
    head, cycle = lines[-2:]
    assert re.fullmatch(r"STATS   \d+\.\d{3} s to read the input", head)
    assert re.fullmatch(r"  cycle 1: [\d.]+ s \(allocate [\d.]+ s, .+\), 1 trial", cycle)


def test_a_node_that_takes_no_pods_says_why() -> None:
    """It may be as empty as it likes."""
    closed = {**node("m", 2), "spec": {"unschedulable": True}}

    assert "m  [..] cordoned   n  [..]" in drawn(closed, node("n", 2))


def test_of_many_nodes_those_are_counted_that_are_alike() -> None:
    """And a cycle has a limited number of lines."""
    work = [it for i in range(60) for it in (group(f"g{i}"), pod(f"p{i}", f"g{i}", 2))]

    text = drawn(queue("team-a", 200), *(node(f"n{i}", 2) for i in range(61)), *work)

    assert text.splitlines()[-1] == "  10 more lines; -o json has all"
    assert "60 nodes  [##]" in text
    assert text.count("  [") == 2


def test_of_many_podgroups_those_are_shown_that_wait_or_move() -> None:
    """The others are counted."""
    quiet = [it for i in range(60) for it in (group(f"g{i}"), pod(f"p{i}", f"g{i}", on="n"))]
    site = [queue("team-a", 200), node("n", 100)]

    text = drawn(*site, *quiet, group("new"), pod("new-0", "new"))

    assert "default/new " in text
    assert "60 more PodGroups that neither wait nor change" in text
    assert "default/g1 " not in text
    assert "60 PodGroups; none waits or changes" in drawn(*site, *quiet)


def test_cpus_and_memory_are_shown_where_a_queue_bounds_them() -> None:
    """In cores and GiB."""
    bounded = queue("team-a", 0)
    bounded["spec"]["resources"]["cpu"] = {"quota": 4000, "limit": -1, "overQuotaWeight": 1}
    bounded["spec"]["resources"]["memory"] = {"quota": -1, "limit": 2147.483648}

    text = drawn(bounded, node("n", 0), group("g"), pod("p", "g", 0))

    assert "\nteam-a   4       -       1            1      -            0" in f"\n{text}"
    assert "\nteam-a   -       2Gi     0Gi          0Gi    -            0Gi" in text
    assert "NODES" not in text


def _taken(**began: str) -> SimulationResult:
    """Return the result for PodGroups of one pod with 4 GPUs, when one with quota needs all 8."""
    objects = [node("n"), queue("team-a", 0), queue("team-b"), *map(group, began)]
    for name, since in began.items():
        running = pod(f"{name}-0", name, 4, on="n")
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": since}
        running["status"]["conditions"] = [condition]
        objects.append(running)
    late = {"creationTimestamp": "2026-01-05T09:30:00Z"}
    objects += [group("c", 2, "team-b"), *(pod(f"c-{i}", "c", 4, **late) for i in range(2))]
    options = SimulationOptions()
    return run(prepare((Document("a.yaml", it) for it in objects), options), options)


def test_what_several_lose_for_one_is_reported_as_the_loss_of_each() -> None:
    """They share a sentence, and would seem to share the loss; the document names each."""
    outcome = _taken(a=NOW, b=NOW)

    evictions = [
        (it["podGroups"], it["workLost"]) for it in outcome.document["cycles"][0]["evictions"]
    ]
    assert evictions == [(["a"], 7200), (["b"], 7200)]
    shown = " ".join(as_text(outcome).split())
    assert "evicted by reclaim: default/a-0, default/b-0" in shown
    assert "2 GPU-hours since its start are lost (the same loss for each of 2)" in shown


def test_evicted_pods_are_in_the_order_of_names() -> None:
    """And not in that of what is lost, by which the words differ."""
    words = as_text(_taken(a="2026-01-05T08:00:00Z", b=NOW)).split()

    assert words.index("default/a-0") < words.index("default/b-0")


def test_idle_gpus_that_no_pod_can_use_are_told_by_node() -> None:
    """Below the nodes; if nothing waits nothing is told."""
    few_cpus = node("n1", 8)
    few_cpus["status"]["allocatable"]["cpu"] = "4"
    objects = [queue("team-a"), few_cpus, node("n2", 1), group("a", 1, "team-a")]
    waiting = pod("a-0", "a", 2)
    waiting["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "8"
    text = drawn(*objects, waiting)
    part = next(it for it in text.split("\n\n") if it.startswith("UNUSABLE"))
    assert part.splitlines() == [
        "UNUSABLE",
        "  9 of 9 idle GPUs suit no pod that waits: 8 for want of CPU, 1 as too few on one node",
        "  they are on n1 (8 for want of CPU), n2 (1 as too few on one node)",
    ]
    assert "UNUSABLE" not in drawn(*objects)
