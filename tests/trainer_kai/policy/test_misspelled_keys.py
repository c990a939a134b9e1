"""Names that look like one that is read."""

import pytest

from tests.support.case import Case, ids
from trainer_kai.api import names
from trainer_kai.policy.misspelled_keys import (
    POD_KEYS,
    PODGROUP_KEYS,
    QUEUE_KEYS,
    TRAINJOB_KEYS,
    KnownKeys,
    is_similar,
    misspelled_keys,
    similar_name,
)

SIMILAR = [
    Case("a letter less", ("kai.scheduler/queu", "kai.scheduler/queue"), True),
    Case("two letters less", ("kai.scheduler/que", "kai.scheduler/queue"), True),
    Case("another sign is similar", ("kai-scheduler/queue", "kai.scheduler/queue"), True),
    Case("two letters changed round", ("kai.scheduler/quuee", "kai.scheduler/queue"), True),
    Case("capital letters are similar", ("KAI.Scheduler/Queue", "kai.scheduler/queue"), True),
    Case("equal keys are similar", ("a", "a"), True),
    Case("two slips far apart", ("kia.scheduler/queen", "kai.scheduler/queue"), False),
    Case("another program's", ("kueue.x-k8s.io/queue-name", "kai.scheduler/queue"), False),
    Case("nothing", ("", "kai.scheduler/queue"), False),
]


@pytest.mark.parametrize("case", SIMILAR, ids=ids)
def test_similar_keys(case: Case[tuple[str, str], bool]) -> None:
    """At most two letters beside each other."""
    assert is_similar(*case.given) == case.want


def test_the_nearest_name_is_meant() -> None:
    """One letter too many is nearer than two changed ones, whatever comes first as text."""
    assert similar_name("team-bb", ["team-a", "team-b", "teams"]) == "team-b"
    assert similar_name("team-c", ["team-b", "team-a"]) == "team-a"
    assert similar_name("team", ["teams"]) == ""


def test_labels_and_annotations() -> None:
    """What is near, and what stands in the wrong place."""
    labels = {"kai.scheduler/topology": "racks", "team": "a", "kai.scheduler/queue": "a"}
    annotations = {"kai.scheduler/queue": "a", "kai.scheduler/batch-minmember": "2"}

    found = list(misspelled_keys(labels, annotations))

    assert [it.path for it in found] == [
        "metadata.labels[kai.scheduler/topology]",
        "metadata.annotations[kai.scheduler/queue]",
        "metadata.annotations[kai.scheduler/batch-minmember]",
    ]
    assert [it.message for it in found] == [
        "has no effect here: move it to metadata.annotations",
        "has no effect here: move it to metadata.labels",
        "has no effect: unknown name. Did you mean kai.scheduler/batch-min-member?",
    ]


FRACTION = "has no effect: unknown name. Did you mean gpu-fraction?"
MEMORY = "has no effect: unknown name. Did you mean gpu-memory?"
# the key of an annotation of a pod template -> what is reported
SHARES: list[Case[str, list[str]]] = [
    *(
        Case(name, name, [FRACTION])
        for name in (
            *("gpu-fractions", "gpu_fraction", "GPU-Fraction", "gpu.fraction", "gpu-fracton"),
            *("runai/gpu-fraction", "kai.scheduler/gpu_fraction", "trainer-kai.dev/gpu-fraction"),
            *("gpu-share", "run.ai/gpu-share"),
        )
    ),
    *(Case(name, name, [MEMORY]) for name in ("gpu-mem", "gpu_mem", "GPU_MEMORY", "gpu-memry")),
    Case(
        "a long one",
        "gpu_fraction_num_devices",
        ["has no effect: unknown name. Did you mean gpu-fraction-num-devices?"],
    ),
    Case(
        "a part of one",
        "gpu-fraction-container",
        ["has no effect: unknown name. Did you mean gpu-fraction-container-name?"],
    ),
]


@pytest.mark.parametrize("case", SHARES, ids=ids)
def test_requests_for_shares(case: Case[str, list[str]]) -> None:
    """They have no domain; a key of others is left alone."""
    for known in (POD_KEYS, TRAINJOB_KEYS):
        found = misspelled_keys({}, {case.given: "1"}, known, "spec.template.")
        assert [it.message for it in found] == case.want


@pytest.mark.parametrize(
    "name",
    [
        *("gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "mps"),
        *("example.com/gpu-fraction", "nvidia.com/gpu.memory", "runai/shared-gpu-configmap"),
        *("cpu-fraction", "cpu-memory", "ops", "map", "mp", "gpu", "gpu-model", "gpu-memory-used"),
        *("memory", "fraction", "gpu-fraction-of-node", "/gpu-fraction", ""),
    ],
)
def test_no_false_alarm(name: str) -> None:
    """What is read, and what others may call so."""
    for known in (POD_KEYS, TRAINJOB_KEYS):
        assert list(misspelled_keys({}, {name: "1"}, known)) == []


def test_a_share_among_the_labels() -> None:
    """It is an annotation; a label as short as mps may be anything."""
    labels = {"gpu-fraction": "0.5", "mps": "true"}

    found = [*misspelled_keys(labels, {}, POD_KEYS, "spec.template."), *misspelled_keys(labels, {})]

    assert list(map(str, found)) == [
        (
            "spec.template.metadata.labels[gpu-fraction]: has no effect here: move it to "
            "spec.template.metadata.annotations"
        ),
        "metadata.labels[gpu-fraction]: has no effect here: move it to metadata.annotations",
    ]


OTHERS: list[Case[tuple[KnownKeys, str], list[str]]] = [
    Case(
        "of a queue",
        (QUEUE_KEYS, "trainer-kai.dev/reclaim-gaol"),
        ["has no effect: unknown name. Did you mean trainer-kai.dev/reclaim-goal?"],
    ),
    Case("of a queue what it is called", (QUEUE_KEYS, "trainer-kai.dev/consolidation"), []),
    Case(
        "of a group",
        (PODGROUP_KEYS, "trainer-kai.dev/reservd"),
        ["has no effect: unknown name. Did you mean trainer-kai.dev/reserved?"],
    ),
    Case("what only a TrainJob has", (PODGROUP_KEYS, "kai.scheduler/topolgy"), []),
]


@pytest.mark.parametrize("case", OTHERS, ids=ids)
def test_annotations_of_others(case: Case[tuple[KnownKeys, str], list[str]]) -> None:
    """Each kind has its own."""
    read, name = case.given

    assert [it.message for it in misspelled_keys({}, {name: "x"}, read)] == case.want


def test_no_name_that_we_know_is_taken_for_another() -> None:
    """Neither KAI's nor ours, and not those of the rest of Kubernetes."""
    known = {it: "" for it in vars(names).values() if isinstance(it, str) and "/" in it}

    assert {it.path for it in misspelled_keys(known, {})} == {
        f"metadata.labels[{it}]"
        for it in (
            *(names.TOPOLOGY, names.TOPOLOGY_REQUIRED, names.TOPOLOGY_PREFERRED),
            *(names.SEGMENT_SIZE, names.SEGMENT_REQUIRED, names.SEGMENT_PREFERRED),
            *(names.BATCH_MIN_MEMBER, names.PREEMPTION_DELAY, names.STALENESS_GRACE_PERIOD),
            *(names.SKIP_PODGROUPER, names.LAST_CHECKPOINT),
        )
    }


@pytest.mark.parametrize("read", [QUEUE_KEYS, PODGROUP_KEYS])
def test_nor_for_another_of_its_kind(read: KnownKeys) -> None:
    """Annotations that KAI and we write on objects of any kind."""
    known = {it: "" for it in vars(names).values() if isinstance(it, str) and "/" in it}

    assert not [it for it in misspelled_keys({}, known, read) if "unknown name" in it.message]
