"""Shares of GPUs and MIG from files to pictures: the examples, and what stays between cycles."""

import random
from typing import Any, Final

import pytest

from tests.support.case import Case, ids
from tests.support.repository import ROOT
from tests.support.workloads.simulate_objects import group, node, pod, queue
from trainer_kai.cli.commands.simulate.simulation import (
    SimulationOptions,
    prepare,
    run,
    simulate,
)
from trainer_kai.cli.commands.simulate.text_output import as_text
from trainer_kai.cli.input.documents import Document, read_files

NOW: Final = "2026-01-05T09:00:00Z"
QUIET: Final = ("binds", "evictions", "nominations")
PICTURES: list[Case[str, str]] = [
    Case(
        "gpu-fractions",
        "gpu-fractions",
        """\
n0  {aaaaaaabb.}
  a default/notebook-0 0.7,  b default/serving-0 0.2
""",
    ),
    Case(
        "gpu-fractions-of-two",
        "gpu-fractions-of-two",
        """\
n0  [#] {aaaaabbbbb} {aaaaabbbbb}
  a default/first-0 2 x 0.5,  b default/second-0 2 x 0.5
""",
    ),
    Case(
        "gpu-memory",
        "gpu-memory",
        """\
unknown  [.]
large    {aaabbbccdd}
  a default/pod-1-0 0.25,  b default/pod-2-0 0.25,  c default/pod-3-0 0.25,  d default/pod-4-0 0.25
small    {aaaabbbbb.}
  a default/pod-5-0 0.49,  b default/pod-6-0 0.49
""",
    ),
    Case("mig", "mig", "mig  [1g.5gb ###.] [3g.20gb #]\n"),
    Case(
        "gpu-fraction-reclaimed",
        "gpu-fraction-reclaimed",
        """\
n0  [#] {aaaaa.....}
  a default/old-0 0.5
""",
    ),
]
WAITING: Final = {
    "gpu-fractions": "1 node has too little free (0.1 of a GPU free on n0). It can start when that "
    "node has 0.2 of a GPU free",
    "gpu-memory": "2 nodes have too little free (at best 0.02 of a GPU free, on small, where the "
    "pod needs 0.49), 1 node does not state the memory of its GPUs in the label",
    "mig": "1 node is a MIG node, which takes no shares of GPUs",
    "gpu-fraction-reclaimed": "(0.5 of a GPU free on n0)",
}


def example(name: str) -> list[Document]:
    return [*read_files([str(ROOT / f"tests/fixtures/clusters/{name}.yaml")])]


@pytest.mark.parametrize("case", PICTURES, ids=ids)
def test_pictures(case: Case[str, str]) -> None:
    """Each GPU that pods share has ten characters; a third plan changes nothing."""
    options = SimulationOptions(cycles=3)

    result = run(prepare(example(case.given), options), options)

    text = as_text(result)
    nodes = next(part for part in text.split("\n\n") if part.startswith("NODES"))
    head = 1 if case.given == "mig" else 2
    assert nodes.splitlines()[head:] == case.want.splitlines()
    assert WAITING.get(case.given, "") in " ".join(text.split())
    assert not any(result.document["cycles"][-1][it] for it in QUIET)


def test_the_part_of_a_gpu_is_reclaimed_whole() -> None:
    """The newest pod of the queue over its quota is evicted for a whole GPU."""
    objects = [it.fields for it in example("gpu-fraction-reclaimed")]

    document = simulate(objects, SimulationOptions(cycles=3))

    first, second, _ = document["cycles"]
    assert [(it["pod"], it["action"]) for it in first["evictions"]] == [("new-0", "reclaim")]
    assert [it["pod"] for it in first["nominations"]] == ["whole-0"]
    assert [it["pod"] for it in second["binds"]] == ["whole-0"]
    assert groups(document) == {"old-0": ["3f0c"], "new-0": [], "whole-0": []}
    assert document["nodes"] == [{"name": "n0", "idleGpus": 0.5, "releasingGpus": 0}]


def share(name: str, amount: str, at: int, *, on: str = "", devices: int = 0) -> dict[str, Any]:
    """Return a pod that requests a part of a GPU, or has it."""
    it = pod(name, name, 0, on=on, creationTimestamp=f"2026-01-05T09:{at:02}:00Z")
    it["metadata"]["annotations"]["gpu-fraction"] = amount
    if devices:
        it["metadata"]["annotations"]["gpu-fraction-num-devices"] = str(devices)
    return it


def groups(document: dict[str, Any]) -> dict[str, list[str]]:
    """Return the shared GPUs of each pod at the end."""
    return {it["name"]: it["gpuGroups"] for it in document["pods"]}


SITE: Final = [queue("team-a"), node("n", 3), *(group(f"p{i}") for i in range(6))]


def test_ids_are_the_same_in_any_order_and_cycle() -> None:
    """A pod keeps the GPUs that it was bound to, and shares them with pods of later cycles."""
    objects = [
        *SITE,
        share("p0", "0.5", 0, devices=2),
        share("p1", "0.3", 1),
        share("p2", "0.4", 2),
    ]
    document = simulate(objects, SimulationOptions(cycles=1))

    random.Random(1).shuffle(objects)

    later = simulate(objects, SimulationOptions(cycles=3))
    assert groups(later) == groups(document)
    first, second = groups(document)["p0"]
    assert groups(document)["p1"] in ([first], [second])
    assert groups(document)["p2"] in ([first], [second])
    assert groups(document)["p1"] != groups(document)["p2"]
    binds = {it["pod"]: it["gpuGroups"] for it in document["cycles"][0]["binds"]}
    assert binds == groups(document)
    assert not any(later["cycles"][2][it] for it in QUIET)
    assert document["nodes"][0]["idleGpus"] == 1.3


def test_running_pods_without_ids_stay_together() -> None:
    """They get an id in the first plan, which pods of that plan have as well."""
    running = [share("p0", "0.4", 0, on="n"), share("p1", "0.4", 1, on="n")]

    document = simulate([*SITE, *running, share("p2", "0.2", 2)], SimulationOptions(cycles=2))

    (shared,) = {tuple(it) for it in groups(document).values()}
    assert len(shared) == 1
    assert document["nodes"][0]["idleGpus"] == 2


def test_a_gpu_without_a_label_gets_an_id() -> None:
    """Of a pod with two GPUs and labels that name one."""
    running = share("p0", "0.4", 0, on="n", devices=2)
    running["metadata"]["labels"] = {"runai-gpu-group": "x"}

    document = simulate(
        [*SITE, running, share("p1", "0.5", 1, devices=2)], SimulationOptions(cycles=3)
    )

    found = groups(document)
    assert found["p0"] == found["p1"]
    assert "x" in found["p0"]
    assert len(found["p0"]) == 2
    assert document["nodes"][0]["idleGpus"] == 1.2


def labelled(it: dict[str, Any], **labels: str) -> dict[str, Any]:
    """Return a pod with labels `runai-gpu-group/<name>`, or `runai-gpu-group` for *group*."""
    it["metadata"]["labels"] = {
        "runai-gpu-group" if name == "group" else f"runai-gpu-group/{name}": value
        for name, value in labels.items()
    }
    return it


def test_the_ids_of_a_pod_are_those_that_count() -> None:
    """They are the values of its labels, the first ones if it has too many."""
    pods = [
        labelled(share("p0", "0.6", 0, on="n"), group="g1", a="a"),
        labelled(share("p1", "0.01", 1, on="n"), zz="a"),
        share("p2", "0.3", 2),
    ]

    for cycles in (1, 3):
        document = simulate([*SITE, *pods], SimulationOptions(cycles=cycles))

        assert groups(document) == {"p0": ["a"], "p1": ["a"], "p2": ["a"]}
        assert document["nodes"][0]["idleGpus"] == 2.09


def test_pods_without_shares_have_no_ids() -> None:
    """Whole GPUs, other schedulers, and pods that have finished, whatever their labels say."""
    whole = labelled(pod("p0", "p0", 1, on="n"), group="g")
    whole["metadata"]["annotations"]["gpu-fraction"] = "0.8"
    other = labelled(share("p1", "0.3", 1, on="n"), group="g")
    other["spec"]["schedulerName"] = "other"
    finished = labelled(share("p2", "0.3", 2, on="n"), group="g")
    finished["status"]["phase"] = "Succeeded"
    shares = labelled(share("p3", "0.3", 3, on="n"), group="g")

    document = simulate([*SITE, whole, other, finished, shares], SimulationOptions())

    assert groups(document) == {"p0": [], "p1": [], "p2": [], "p3": ["g"]}


@pytest.mark.parametrize("cycles", [1, 3])
@pytest.mark.parametrize(("deadline", "releasing"), [("2026-01-05T09:05:00Z", 0.6), (NOW, 0)])
def test_a_terminating_pod_keeps_its_ids(cycles: int, deadline: str, releasing: float) -> None:
    """With and without labels, also after its deadline: it stays beside the running pods there."""
    ending = share("p1", "0.3", 1, on="n"), labelled(share("p2", "0.3", 2, on="n"), zz="x", a="g")
    for it in ending:
        it["metadata"]["deletionTimestamp"] = deadline
    running = share("p0", "0.3", 0, on="n"), labelled(share("p3", "0.3", 3, on="n"), group="g")
    options = SimulationOptions(cycles=cycles, terminating_pods="keep")

    document = simulate([*SITE, *running, *ending], options)

    found = groups(document)
    assert found["p0"] == found["p1"] != ["g"]
    assert len(found["p0"]) == 1
    assert found["p2"] == found["p3"] == ["g"]
    assert document["nodes"] == [{"name": "n", "idleGpus": 1.8, "releasingGpus": releasing}]


def test_a_pod_that_is_bound_again_gets_an_id_of_its_own() -> None:
    """Another pod still has the id that depends on it."""
    pods = [share("p0", "0.5", 0), share("p1", "0.9", 1)]
    (first,) = groups(simulate([*SITE, *pods], SimulationOptions(cycles=1)))["p0"]
    other = share("p2", "0.6", 2, on="n")
    other["metadata"]["labels"] = {"runai-gpu-group": first}

    found = groups(simulate([*SITE, *pods, other], SimulationOptions(cycles=2)))

    assert found["p2"] == [first]
    assert len({*found["p0"], *found["p1"], *found["p2"]}) == 3


def test_a_nominated_pod_has_no_id_yet() -> None:
    """It is drawn where it will be; in the next plan it is bound."""
    going = pod("going", gpus=1, on="n", deletionTimestamp=NOW)
    objects = [queue("team-a"), node("n", 1), group("p0"), group("p1"), going]
    objects += [share("p0", "0.5", 0), share("p1", "0.3", 1)]

    options = SimulationOptions()
    result = run(prepare((Document("a.yaml", it) for it in objects), options), options)

    assert groups(result.document) == {"p0": [], "p1": [], "going": []}
    text = as_text(result)
    assert "n  {aaaaabbb~~}\n  a default/p0 0.5 (nominated),  b default/p1 0.3 (nominated)" in text
    assert result.document["nodes"] == [{"name": "n", "idleGpus": 0, "releasingGpus": 0.2}]


def test_a_share_on_a_node_without_gpus_is_not_drawn() -> None:
    """A pod of a file may run anywhere."""
    options = SimulationOptions()
    for site in ([node("n", 0)], [node("n", 0), node("m", 1)], []):
        objects = [queue("team-a"), group("p0"), *site, share("p0", "0.5", 0, on="n")]

        result = run(prepare((Document("a.yaml", it) for it in objects), options), options)

        assert "shared GPU" not in as_text(result)
        assert sum(it["idleGpus"] for it in result.document["nodes"]) == len(site) // 2
