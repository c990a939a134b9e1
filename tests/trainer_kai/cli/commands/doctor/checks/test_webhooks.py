"""What is missing of webhook configurations, or otherwise."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.commands.doctor.installation import (
    check_results,
    deployment,
    healthy_installation,
    webhook_configurations,
)
from trainer_kai.cli.commands.doctor.facts import InstallationFacts

CREATE, UPDATE, POD, SHARE, DEVICES = (
    f"{it}.trainer-kai.dev"
    for it in ("jobset-create", "jobset-update", "pod", "gpu-share", "device-access")
)
BLOCK = "TRAINER_KAI_ADMISSION_NVIDIA_VISIBLE_DEVICES"

GANG = {"key": "trainer-kai.dev/gang", "operator": "Exists"}
NARROWER = {"matchExpressions": [GANG, {"key": "team", "operator": "Exists"}]}
OTHER = "match condition not-bound differs"
FAILS = "failurePolicy is Fail instead of Ignore"
BLOCKS = "other workloads are refused while the webhook is down"


def change(number: int, **fields: Any) -> Callable[[Any], None]:
    def changed(found: Any) -> None:
        found[0]["webhooks"][number] |= fields

    return changed


def called_at(path: str) -> Callable[[Any], None]:
    def changed(found: Any) -> None:
        found[0]["webhooks"][0]["clientConfig"]["service"]["path"] = path

    return changed


def without_webhook(found: Any) -> None:
    found[0]["webhooks"].pop(3)


def without_rule(found: Any) -> None:
    """Let the first one be asked about nothing that is made."""
    found[0]["webhooks"][0]["rules"][0]["operations"] = ["UPDATE"]


def unconditional(found: Any) -> None:
    """Ask the first one about every JobSet."""
    conditions = found[0]["webhooks"][0]["matchConditions"]
    conditions[:] = [it for it in conditions if it["name"] != "of-ours"]


def unconditional_by_name(found: Any) -> None:
    """Ask the first one about every JobSet, by a condition that always holds."""
    for it in found[0]["webhooks"][0]["matchConditions"]:
        it["expression"] = "true"


def filled(found: Any) -> None:
    """Fill in what an API server does, and break a line where YAML may."""
    for hook in found[0]["webhooks"]:
        hook["rules"][0] = {**hook["rules"][0]}
        hook.setdefault("objectSelector", {})
        for condition in hook["matchConditions"]:
            condition["expression"] = condition["expression"].replace(" && ", "\n&& ")


CHANGED: list[Case[Callable[[Any], None], tuple[str, str]]] = [
    Case("one is missing", without_webhook, ("fault", f"kai-trainer lacks {SHARE}")),
    Case(
        "all pods with shares wait for us",
        change(3, matchConditions=[]),
        (
            "fault",
            (
                f"kai-trainer, {SHARE}: match condition of-our-scheduler matches everything: "
                f"{BLOCKS}, {SHARE}: match condition requests-a-share matches everything: {BLOCKS}"
            ),
        ),
    ),
    Case(
        "one is called elsewhere",
        called_at("/mutate"),
        ("fault", f"kai-trainer, {CREATE}: is called at /mutate instead of /mutate/jobset"),
    ),
    Case(
        "one is not asked",
        without_rule,
        ("fault", f"kai-trainer, {CREATE}: is not called for CREATE of jobsets.jobset.x-k8s.io"),
    ),
    Case(
        "dry runs are refused while the webhook is down",
        change(0, sideEffects="Some"),
        ("fault", f"kai-trainer, {CREATE}: sideEffects is Some: dry runs are refused"),
    ),
    Case(
        "what is made while we are away runs without us",
        change(0, failurePolicy="Ignore"),
        ("warning", f"kai-trainer, {CREATE}: failurePolicy is Ignore instead of Fail"),
    ),
    Case(
        "pods wait for us",
        change(2, failurePolicy="Fail"),
        ("warning", f"kai-trainer, {POD}: {FAILS}"),
    ),
    Case(
        "everybody is asked about",
        unconditional,
        (
            "fault",
            f"kai-trainer, {CREATE}: match condition of-ours matches everything: {BLOCKS}",
        ),
    ),
    Case(
        "everybody is asked about, by a condition",
        unconditional_by_name,
        (
            "fault",
            f"kai-trainer, {CREATE}: match condition of-ours matches everything: {BLOCKS}",
        ),
    ),
    Case(
        "every pod is asked about",
        change(2, objectSelector={}),
        ("warning", f"kai-trainer, {POD}: objectSelector differs"),
    ),
    Case(
        "every pod waits for us",
        change(2, objectSelector={}, failurePolicy="Fail"),
        ("fault", f"kai-trainer, {POD}: objectSelector is wider: {BLOCKS}"),
    ),
    Case(
        "some of ours wait for us",
        change(2, objectSelector=NARROWER, failurePolicy="Fail"),
        (
            "warning",
            f"kai-trainer, {POD}: {FAILS}, {POD}: objectSelector differs",
        ),
    ),
    Case(
        "a condition of somebody",
        change(
            2,
            matchConditions=[
                {"name": "not-bound", "expression": "true"},
                {"name": "mine", "expression": "false"},
            ],
        ),
        (
            "warning",
            f"kai-trainer, {POD}: {OTHER}, {POD}: match condition mine is not in the manifests",
        ),
    ),
    Case(
        "another time-out is a warning",
        change(1, timeoutSeconds=30),
        ("warning", f"kai-trainer, {UPDATE}: timeoutSeconds differs"),
    ),
    Case(
        "what an API server fills in",
        filled,
        ("ok", "kai-trainer has its 6 webhooks, as in the manifests"),
    ),
]


@pytest.mark.parametrize("case", CHANGED, ids=ids)
def test_a_configuration(case: Case[Callable[[Any], None], tuple[str, str]]) -> None:
    """What keeps us from being asked is a fault; what is otherwise and works is a warning."""
    facts = healthy_installation()._replace(
        configurations=webhook_configurations(change=case.given)
    )

    assert check_results(facts, "webhooks")[0] == case.want


def with_settings(facts: InstallationFacts, **variables: str) -> InstallationFacts:
    return facts._replace(deployments=[deployment("trainer-kai-webhook", 2, **variables)])


def test_beside_kai_no_webhook_prepares_shares() -> None:
    """KAI's admission does; there it is no fault that ours is missing."""
    facts = healthy_installation()._replace(
        configurations=webhook_configurations(change=without_webhook)
    )

    off = {"TRAINER_KAI_GPU_SHARING_ENABLED": "false"}
    for setting, count in (({"TRAINER_KAI_MODE": "external"}, 4), (off, 5)):
        found = check_results(with_settings(facts, **setting), "webhooks")
        assert found[0] == ("ok", f"kai-trainer has its {count} webhooks, as in the manifests")
    assert check_results(with_settings(facts), "webhooks")[0][0] == "fault"


def with_device_access(found: Any) -> None:
    found[0]["webhooks"].append({**found[0]["webhooks"][3], "name": DEVICES})


@pytest.mark.parametrize(
    ("value", "is_called", "want"),
    [
        ("allow", False, ""),
        ("block", True, ""),
        ("block", False, f"{BLOCK} is block, and the webhook {DEVICES} does not exist: only pods"),
        ("allow", True, f"{BLOCK} is allow, and the webhook {DEVICES} exists: containers may use"),
    ],
)
def test_the_setting_and_the_webhook_go_together(value: str, is_called: bool, want: str) -> None:
    """One without the other restricts nothing, or not what the setting says."""
    changed = webhook_configurations(change=with_device_access if is_called else lambda _: None)
    facts = with_settings(healthy_installation(), **{BLOCK: value})

    found = check_results(facts._replace(configurations=changed), "webhooks")
    faults = [text for state, text in found if state == "fault"]

    assert len(faults) == bool(want)
    assert all(text.startswith(want) for text in faults)


def test_none_at_all() -> None:
    """Then no TrainJob is admitted."""
    assert check_results(healthy_installation()._replace(configurations=[]), "webhooks")[0] == (
        "fault",
        "the MutatingWebhookConfiguration kai-trainer does not exist: no TrainJob is admitted",
    )


def other(name: str, group: str, plural: str) -> dict[str, Any]:
    rule = {"apiGroups": [group], "resources": [plural]}
    return {
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{"name": "x", "rules": [rule]}],
    }


# a configuration beside ours -> what is reported of the order
ORDER: list[Case[dict[str, Any], str]] = [
    Case("KAI's own name", other("mutating-kai-admission", "", "pods"), "ok"),
    Case(
        "a renamed webhook of KAI is told by its rules",
        other("a-kai-admission", "", "pods"),
        "warning",
    ),
    Case(
        "a renamed webhook of JobSet is told by its rules",
        other("my-jobset", "jobset.x-k8s.io", "jobsets"),
        "warning",
    ),
    Case(
        "the webhook of Kueue may come after",
        other("kueue-mutating", "jobset.x-k8s.io", "jobsets"),
        "ok",
    ),
    Case("any other webhook may come after", other("a", "", "pods"), "ok"),
]


@pytest.mark.parametrize("case", ORDER, ids=ids)
def test_who_is_called_before_us(case: Case[dict[str, Any], str]) -> None:
    """Configurations are called in the order of their names."""
    facts = healthy_installation()._replace(configurations=[*webhook_configurations(), case.given])

    assert [state for state, _ in check_results(facts, "webhook order")] == [case.want]
