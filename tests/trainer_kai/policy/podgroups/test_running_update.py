"""What of a PodGroup follows its JobSet while pods run: what makes it easier to evict."""

from typing import Any, NamedTuple

import pytest

from tests.support.case import Case, ids
from trainer_kai.api.cluster_kinds import PriorityClass
from trainer_kai.api.meta import Meta
from trainer_kai.policy.podgroups.manifests import GroupingMode, running_update
from trainer_kai.policy.queueing.priority_classes import SelectablePriorityClasses

_VALUES = {"low": 10, "train": 50, "more": 75, "inference": 125, "system-node-critical": 2 * 10**9}
CLASSES = SelectablePriorityClasses(
    {
        name: PriorityClass(metadata=Meta(name=name), value=value, global_default=value == 50)
        for name, value in _VALUES.items()
    }
)
POOL, QUEUE = "kai.scheduler/node-pool", "kai.scheduler/queue"


class Change(NamedTuple):
    """What a PodGroup is, and what its JobSet asks for by now; the class is `train`."""

    current: dict[str, Any]
    wanted: dict[str, Any]
    mode: GroupingMode = "bundled"


def priority(current: str, wanted: str) -> Change:
    before, then = ({"priorityClassName": name} for name in (current, wanted))
    return Change(before, then)


def fixed(current: str, wanted: str, name: str = "train") -> Change:
    text_said = ({"preemptibility": text} if text else {} for text in (current, wanted))
    before, then = ({"priorityClassName": name, **it} for it in text_said)
    return Change(before, then)


def grace(current: str, wanted: str, mode: GroupingMode = "bundled") -> Change:
    before, then = ({"stalenessGracePeriod": text} if text else {} for text in (current, wanted))
    return Change(before, then, mode)


REMEDY = "suspend the TrainJob and resume it"
NO, YES = "non-preemptible", "preemptible"
CHANGES: list[Case[Change, bool]] = [
    Case("another queue is not allowed", Change({"queue": "a"}, {"queue": "b"}), False),
    Case("a larger class", priority("train", "more"), False),
    Case("a class across 100 is not allowed", priority("train", "inference"), False),
    Case("a smaller class", priority("train", "low"), True),
    Case("a class that there is not counts as the default", priority("train", "none"), True),
    Case("which is more than a small one", priority("low", "none"), False),
    Case("not smaller than the default", priority("inference", "more"), False),
    Case("from one that may not count", priority("system-node-critical", "inference"), False),
    Case("back to the default", priority("inference", "train"), True),
    Case("not any more", fixed("", NO), False),
    Case("nor from an explicit yes", fixed(YES, NO), False),
    Case("by its class", fixed(YES, "", "inference"), False),
    Case("a class is no proof that it was not", fixed("", NO, "system-node-critical"), False),
    Case("from now on", fixed(NO, YES), True),
    Case("as all others", fixed(NO, ""), True),
    Case("a stated default is no change", fixed(YES, ""), True),
    Case("as its class does not say", fixed("", YES, "inference"), True),
    Case("longer in part", grace("30s", "31s"), False),
    Case("a longer grace period is not allowed", grace("30s", "-1s"), False),
    Case("longer than KAI has it", grace("", "61s"), False),
    Case("a shorter grace period is allowed", grace("-1s", "1h"), True),
    Case("shorter than KAI has it", grace("", "59s"), True),
    Case("as the site has it", grace("30s", ""), True),
    Case("beside a KAI for ever, as all others", grace("30s", "-1s", "external"), True),
    Case("any other field may change", Change({"minSubGroup": 1}, {"minSubGroup": 2}), True),
]


def fields(spec: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    usual = {"queue": "a", "priorityClassName": "train"}
    return {"metadata": {"name": "g", "labels": labels}, "spec": {**usual, **spec}}


@pytest.mark.parametrize("case", CHANGES, ids=ids)
def test_what_is_copied_while_pods_run(case: Case[Change, bool]) -> None:
    """What is not copied is reported, with its field and the kept value."""
    current, wanted = (fields(it, {QUEUE: "a"}) for it in case.given[:2])
    found = running_update(
        wanted, current["metadata"]["labels"], current["spec"], CLASSES, case.given.mode, REMEDY
    )

    assert found.fields == (wanted if case.want else current)
    assert bool(found.deferred) != case.want


def test_queue_and_label_stay_together() -> None:
    """Also where the JobSet names none any more: label and field name the same queue."""
    for current, wanted in (({QUEUE: "a"}, {}), ({}, {QUEUE: "b"}), ({QUEUE: "a"}, {QUEUE: "b"})):
        found = running_update(
            fields({"queue": "b"}, wanted),
            current,
            fields({}, {})["spec"],
            CLASSES,
            "bundled",
            REMEDY,
        )
        assert found.fields["metadata"]["labels"] == current
        assert found.fields["spec"]["queue"] == "a"


def test_the_node_pool_stays() -> None:
    """Where a KAI schedules, another pool is another scheduler: none would evict it."""
    for current, wanted in (({POOL: "x"}, {}), ({}, {POOL: "y"}), ({POOL: "x"}, {POOL: "y"})):
        found = running_update(
            fields({}, wanted), current, fields({}, {})["spec"], CLASSES, "external", REMEDY
        )
        assert found.fields["metadata"]["labels"] == current
        (reported,) = found.deferred
        assert reported.path == f"metadata.labels[{POOL}]"


def test_a_message_says_what_is_kept_and_until_when() -> None:
    """With both values, and what to do."""
    change = fixed("", NO)
    found = running_update(
        fields(change.wanted, {}),
        {},
        fields(change.current, {})["spec"],
        CLASSES,
        "bundled",
        REMEDY,
    )

    (reported,) = map(str, found.deferred)
    assert reported == (
        "metadata.labels[kai.scheduler/preemptibility]: preemptibility remains none while "
        "pods of the PodGroup run. To use 'non-preemptible', suspend the TrainJob and resume "
        "it"
    )


def test_a_group_without_a_queue_gets_one() -> None:
    """An older version may have created it; a missing value is not kept."""
    current = {"priorityClassName": "train"}
    found = running_update(
        fields({"queue": "b"}, {QUEUE: "b"}), {}, current, CLASSES, "bundled", REMEDY
    )

    assert found.fields == fields({"queue": "b"}, {QUEUE: "b"})
