"""What is missing of the policies of the API server, or otherwise."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.commands.doctor.installation import (
    by_policy,
    check_results,
    deployment,
    healthy_installation,
)
from trainer_kai.cli.commands.doctor.expected import expected_manifests
from trainer_kai.cli.commands.doctor.facts import InstallationFacts, require

_JOBSETS = "trainer-kai-jobsets"
_ALL = f"trainer-kai-configmaps, trainer-kai-gpu-sharing, trainer-kai-jobs, {_JOBSETS} and 13 more"
_OPEN = "other accounts can write the fields that the processes rely on"
Change = Callable[[Any, Any], None]


def _not_in(namespace: str) -> str:
    return f"!request.userInfo.username.startsWith('system:serviceaccount:{namespace}:')"


def without(*kinds: str) -> InstallationFacts:
    """Return an installation that lacks the policy of JobSets, its binding, or both."""
    facts = healthy_installation()
    left = [
        it
        for it in require(facts.validating_policies)
        if it["metadata"]["name"] != _JOBSETS or it["kind"] not in kinds
    ]
    return facts._replace(validating_policies=left)


def test_one_is_missing() -> None:
    """Then it keeps nothing."""
    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        results = check_results(without(kind), "policies")
        assert results == [("fault", f"{kind} {_JOBSETS} does not exist: {_OPEN}")]


def narrow(policy: Any, _: Any) -> None:
    """Let some namespaces do as they like."""
    policy["matchConstraints"]["namespaceSelector"] = {"matchLabels": {"a": "b"}}


def excuse(policy: Any, _: Any) -> None:
    """Let one resource be written."""
    policy["matchConstraints"]["excludeResourceRules"] = [{"resources": ["jobsets"]}]


def allow(policy: Any, _: Any) -> None:
    policy["validations"][0]["expression"] = "true"


def add(policy: Any, _: Any) -> None:
    """Ask for more before it counts."""
    policy["matchConditions"].append({"name": "never", "expression": "false"})


def ignore(policy: Any, _: Any) -> None:
    policy["failurePolicy"] = "Ignore"


def restrict(_: Any, binding: Any) -> None:
    binding["matchResources"] = {"namespaceSelector": {"matchLabels": {"a": "b"}}}


def audit(_: Any, binding: Any) -> None:
    binding["validationActions"] = ["Warn", "Audit"]


def fill(policy: Any, binding: Any) -> None:
    """Fill in what an API server may."""
    policy["validations"][0]["reason"] = "Invalid"
    policy["matchConstraints"].pop("objectSelector")
    binding["new"] = "field"


# a change of the policy of JobSets, or its binding -> what is reported
CHANGED: list[Case[Change, tuple[str, str]]] = [
    Case(
        "fewer namespaces are a difference",
        narrow,
        ("warning", f"{_JOBSETS}: matchConstraints differs"),
    ),
    Case(
        "an exception is a difference",
        excuse,
        ("warning", f"{_JOBSETS}: excludeResourceRules is not in the manifests"),
    ),
    Case("another rule is a difference", allow, ("warning", f"{_JOBSETS}: validations differs")),
    Case("one more condition", add, ("warning", f"{_JOBSETS}: matchConditions differs")),
    Case("another failure policy", ignore, ("warning", f"{_JOBSETS}: failurePolicy differs")),
    Case(
        "fewer namespaces in its binding",
        restrict,
        ("warning", f"{_JOBSETS}: its binding's matchResources is not in the manifests"),
    ),
    Case(
        "it only warns",
        audit,
        ("fault", f"{_JOBSETS} is bound without the action Deny: {_OPEN}"),
    ),
    Case(
        "defaults of the API server are none",
        fill,
        ("ok", f"{_ALL} are bound, as in the manifests"),
    ),
]


@pytest.mark.parametrize("case", CHANGED, ids=ids)
def test_one_is_changed(case: Case[Change, tuple[str, str]]) -> None:
    """What refuses nothing is a fault, what may be meant a warning."""
    facts = healthy_installation()
    found = {
        it["kind"]: it
        for it in require(facts.validating_policies)
        if it["metadata"]["name"] == _JOBSETS
    }
    policy, binding = (found[f"ValidatingAdmissionPolicy{it}"]["spec"] for it in ("", "Binding"))
    case.given(policy, binding)

    assert check_results(facts, "policies") == [case.want]


def test_without_processes_there_are_none() -> None:
    """Where the API server alone injects, nothing of ours goes by what others write."""
    facts = by_policy(healthy_installation())._replace(validating_policies=[])

    assert check_results(facts, "policies") == [
        ("ok", "none, and none is needed: no process of trainer-kai runs here")
    ]


def test_elsewhere_other_accounts_write() -> None:
    """An installation in another namespace trusts the accounts there."""
    facts = healthy_installation()
    other_policies = [
        {**it, "spec": _renamed(it["spec"])} for it in require(facts.validating_policies)
    ]
    moved = facts._replace(
        manifests=expected_manifests(namespace="gangs"), validating_policies=other_policies
    )

    assert check_results(moved, "policies")[0][0] == "ok"
    [(state, sentence)] = check_results(moved._replace(manifests=expected_manifests()), "policies")
    assert state == "fault"
    assert "names system:serviceaccount:gangs:trainer-kai-scheduler instead of" in sentence
    assert sentence.endswith("the processes are refused")


@pytest.mark.parametrize(
    ("namespaces", "exemption"),
    [
        ("gpu-sched, kai", f"{_not_in('gpu-sched')} && {_not_in('kai')}"),
        ("", "true"),
        ("gpu-sched", _not_in("kai-scheduler")),
    ],
    ids=["the chart's", "none", "as in the manifests"],
)
def test_kai_in_other_namespaces(namespaces: str, exemption: str) -> None:
    """The chart exempts the accounts there; a policy as in the manifests is right as well."""
    facts = healthy_installation()
    policies = [
        _with_exemption(it, exemption) if it["kind"].endswith("Policy") else it
        for it in require(facts.validating_policies)
    ]
    scheduler = deployment("trainer-kai-scheduler", TRAINER_KAI_KAI_NAMESPACES=namespaces)

    found = check_results(
        facts._replace(validating_policies=policies, deployments=[scheduler]), "policies"
    )

    assert found == [("ok", f"{_ALL} are bound, as in the manifests")]


def test_an_exemption_of_another_namespace() -> None:
    """The scheduler does not look for KAI there, so this may be a mistake."""
    facts = healthy_installation()
    policies = [
        _with_exemption(it, _not_in("gpu-sched")) if it["kind"].endswith("Policy") else it
        for it in require(facts.validating_policies)
    ]

    assert check_results(facts._replace(validating_policies=policies), "policies") == [
        (
            "warning",
            (
                "trainer-kai-gpu-sharing: matchConditions differs, "
                "trainer-kai-pods: matchConditions differs and 1 more"
            ),
        )
    ]


def test_pods_of_a_scheduler_of_another_name() -> None:
    """The policy on pods has to be about the name that the site chose."""
    ours, other = (
        {it.name: json.dumps(it.spec) for it in expected_manifests(name).policies}[
            "trainer-kai-pods"
        ]
        for name in ("kai-scheduler", "mine")
    )

    assert "'kai-scheduler'" in ours
    assert other == ours.replace("'kai-scheduler'", "'mine'")
    assert "system:serviceaccount:kai-scheduler:" in other


def _with_exemption(policy: Any, exemption: str) -> Any:
    conditions = [
        {**it, "expression": exemption} if it["name"] == "not-by-kai" else it
        for it in policy["spec"].get("matchConditions", ())
    ]
    return {**policy, "spec": {**policy["spec"], "matchConditions": conditions}}


def _renamed(spec: Any) -> Any:
    if isinstance(spec, str):
        return spec.replace("system:serviceaccount:trainer-kai:", "system:serviceaccount:gangs:")
    if isinstance(spec, dict):
        return {name: _renamed(it) for name, it in spec.items()}
    return [_renamed(it) for it in spec]
