"""Queues that are open because they have no access annotation, and mistyped annotations."""

import pytest

from tests.support.case import Case, ids
from tests.support.workloads.simulate_objects import queue
from tests.trainer_kai.cli.commands.doctor.installation import (
    check_results,
    deployment,
    healthy_installation,
    queues,
)
from trainer_kai.api.names import ACCESS
from trainer_kai.cli.commands.doctor.checks.all_checks import CHECKS, run_checks
from trainer_kai.cli.commands.doctor.facts import InstallationFacts, PodGroupQueue

CHECK = "queue access"


def having(*notes: str | None, groups: tuple[PodGroupQueue, ...] = ()) -> InstallationFacts:
    """Return an installation with a queue above others, which have these annotations."""
    below = (
        queue(name, parent="top", annotations={} if note is None else {ACCESS: note})
        for name, note in zip("abcde", notes, strict=False)
    )
    return healthy_installation()._replace(
        queues=queues(queue("top"), *below), podgroup_queues=groups
    )


def with_setting(value: str, facts: InstallationFacts) -> InstallationFacts:
    variables = {"TRAINER_KAI_QUEUE_ACCESS_UNANNOTATED": value}
    return facts._replace(deployments=[deployment("trainer-kai-webhook", 2, **variables)])


OPEN = "open to all namespaces, because not annotated:"
PODGROUPS = tuple(PodGroupQueue(f"{it}/pg", "a") for it in ("red", "blue", "red"))
CASES: list[Case[InstallationFacts, list[tuple[str, str]]]] = [
    Case(
        "all say it",
        having("open", "closed"),
        [("ok", "1 of 2 queues are closed to namespaces without a grant")],
    ),
    Case("one says nothing", having(None, "closed"), [("warning", f"{OPEN} a (no namespace)")]),
    Case(
        "with the namespaces that use it",
        having(None, None, groups=PODGROUPS),
        [("warning", f"{OPEN} a (blue, red), b (no namespace)")],
    ),
    Case(
        "those are closed here",
        with_setting("closed", having(None, "open")),
        [("ok", "1 of 2 queues are closed to namespaces without a grant")],
    ),
    Case(
        "a slip",
        having("Closed", "open"),
        [("fault", f"queue a: metadata.annotations[{ACCESS}] is 'Closed', and counts as closed")],
    ),
    Case(
        "a slip, and one that says nothing",
        having("", None),
        [
            ("fault", f"queue a: metadata.annotations[{ACCESS}] is '', and counts as closed"),
            ("warning", f"{OPEN} b (no namespace)"),
        ],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_who_may_use_queues(case: Case[InstallationFacts, list[tuple[str, str]]]) -> None:
    """An open queue may be meant, and is a warning; a value that is none is a fault."""
    assert check_results(case.given, CHECK) == case.want


def test_what_would_be_right_is_reported() -> None:
    """The command for the first, and the values."""
    found = run_checks(having("what", None), {CHECK: CHECKS[CHECK]})

    assert [it.remedy for it in found] == [
        "open or closed",
        (
            f"`trainer-kai queue close b --from-usage`, or set the annotation {ACCESS}: open, for "
            "each queue"
        ),
    ]


def test_a_mistyped_annotation_is_reported_by_one_check() -> None:
    """Not by that of the queues as well."""
    assert check_results(having("what"), "queues") == [("ok", "2 queues, all below a root")]
