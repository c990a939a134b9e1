"""What a site says of minimum run times."""

import pytest

from scheduler.core.model.result import MinRuntime
from scheduler.policies.registry import (
    PluginSelection,
    PolicySelection,
    build_policies,
    selection_errors,
)
from tests.support.case import Case, ids


def chosen(**arguments: str) -> PolicySelection:
    return PolicySelection(plugins={"minruntime": PluginSelection(arguments=arguments)})


# text -> seconds, or what is said of it
DURATIONS: list[Case[str, int | str]] = [
    Case("seconds are read", "90s", 90),
    Case("several units are added up", "1h30m", 5400),
    Case("days and weeks, as KAI reads them", "1w2d", 777_600),
    Case("a part of a second is rounded up", "1500ms", 2),
    Case("zero is no minimum", "0", 0),
    Case("without a unit", "90", "defaultReclaimMinRuntime of minruntime must be a duration"),
    Case(
        "less than zero is refused",
        "-1s",
        "defaultReclaimMinRuntime of minruntime must be a duration",
    ),
    Case(
        "an empty text is refused", "", "defaultReclaimMinRuntime of minruntime must be a duration"
    ),
    Case("something behind it", "1s,", "defaultReclaimMinRuntime of minruntime must be a duration"),
]


@pytest.mark.parametrize("case", DURATIONS, ids=ids)
def test_durations(case: Case[str, int | str]) -> None:
    """What cannot be meant is told, and as if it were not there."""
    choice = chosen(defaultReclaimMinRuntime=case.given)
    report = "".join(selection_errors(choice))
    if isinstance(case.want, str):
        assert report.startswith(case.want)
    else:
        assert report == ""
    want = case.want if isinstance(case.want, int) else 0
    assert build_policies(choice).min_runtime == MinRuntime(0, want, from_victim_queue=False)


def test_each_action_has_its_own() -> None:
    """And there is no minimum runtime unless it is configured."""
    assert build_policies(PolicySelection()).min_runtime == MinRuntime(
        0, 0, from_victim_queue=False
    )
    assert build_policies(chosen(defaultPreemptMinRuntime="1m")).min_runtime == MinRuntime(
        preempt_s=60
    )


@pytest.mark.parametrize(
    ("text", "from_victim_queue"), [("lca", False), ("queue", True), ("x", False)]
)
def test_which_queue_counts(text: str, from_victim_queue: bool) -> None:
    choice = chosen(reclaimResolveMethod=text)
    found = build_policies(choice).min_runtime
    assert found is not None
    assert found.from_victim_queue == from_victim_queue
    right = 'must be "lca", the default, or "queue"'
    want = [f"reclaimResolveMethod of minruntime {right}, not 'x'"] if text == "x" else []
    assert [*selection_errors(choice)] == want


def test_it_may_be_off() -> None:
    assert (
        build_policies(
            PolicySelection(plugins={"minruntime": PluginSelection(enabled=False)})
        ).min_runtime
        is None
    )
