"""Names in claims of devices: templates and classes that do not exist."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.policy.lint.cluster import LintInput, decode_spec, findings
from tests.trainer_kai.policy.specs import jobset, rjob
from trainer_kai.api.device_kinds import RequestedClass, ResourceClaimSpec, requested_classes
from trainer_kai.api.meta import Key
from trainer_kai.policy.lint.node_index import KnownCluster

_PATH = (
    "spec.replicatedJobs[0].template.spec.template.spec.resourceClaims[1].resourceClaimTemplateName"
)
_EXISTING = "Name an existing one: gpu.nvidia.com, nic"
_ALTERNATIVES = [
    {"name": "small", "deviceClassName": "mig"},
    {"name": "large", "deviceClassName": "nic"},
]
_TEMPLATES: Mapping[str, object] = {
    "good": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}],
    "bad": [{"name": "gpu", "exactly": {"deviceClassName": "gup"}}],
    "first": [{"name": "gpu", "firstAvailable": _ALTERNATIVES}],
    "later": [{"name": "gpu"}],
}


class _Given(NamedTuple):
    """The template of the second claim of a pod, and what is known."""

    template: str
    scheduler: str = ""
    classes: frozenset[str] | None = frozenset({"nic", "gpu.nvidia.com"})
    has_templates: bool = True


def _find(key: Key) -> Iterable[RequestedClass] | None:
    if key.namespace != "team" or key.name not in _TEMPLATES:
        return () if key.name == "left-out" else None
    spec = {"devices": {"requests": _TEMPLATES[key.name]}}
    return requested_classes(decode_spec(ResourceClaimSpec, spec))


def _unknown(request: str, template: str, name: str, remedy: str = _EXISTING) -> list[str]:
    message = (
        f"request '{request}' of ResourceClaimTemplate {template} names DeviceClass '{name}', "
        f"which does not exist, so no pod starts until it does. {remedy}"
    )
    return [f"unknown-device-class? {_PATH}: {message}"]


_TEMPLATE = "ResourceClaimTemplate 'tmplate' does not exist in namespace team"
_NO_TEMPLATE = [f"unknown-claim-template? {_PATH}: {_TEMPLATE}, so no pod starts until it does"]
CASES: list[Case[_Given, list[str]]] = [
    Case("all exists", _Given("good"), []),
    Case("a template that does not exist", _Given("tmplate"), _NO_TEMPLATE),
    Case("a class that does not exist", _Given("bad"), _unknown("gpu", "bad", "gup")),
    Case("a class of an alternative", _Given("first"), _unknown("gpu/small", "first", "mig")),
    Case(
        "no class at all",
        _Given("bad", classes=frozenset()),
        _unknown("gpu", "bad", "gup", "None exists: install the driver of the devices"),
    ),
    Case("a request of a later version", _Given("later"), []),
    Case("a template that was left out", _Given("left-out"), []),
    Case("classes that were not listed", _Given("bad", classes=None), []),
    Case("templates that were not listed", _Given("tmplate", has_templates=False), []),
    Case("pods of another scheduler", _Given("tmplate", "default-scheduler"), []),
    Case(
        "pods that name our scheduler",
        _Given("bad", "kai-scheduler"),
        _unknown("gpu", "bad", "gup"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_names_that_do_not_exist(case: Case[_Given, list[str]]) -> None:
    template, scheduler, classes, has_templates = case.given
    claims = [
        {"name": "shared", "resourceClaimName": "unknown"},
        {"name": "own", "resourceClaimTemplateName": template},
    ]
    pod = {"containers": [{"name": "node"}], "resourceClaims": claims, "schedulerName": scheduler}
    own = jobset(rjob("node", pod=pod), namespace="team")
    known = KnownCluster(device_classes=classes, claim_template=_find if has_templates else None)
    found = findings(LintInput(own, known))
    assert [it for it in found if it.startswith("unknown-")] == case.want


_CONTAINER = "spec.replicatedJobs[0].template.spec.template.spec"
# the names of the claims of a pod, and those of a container -> what is wrong with its second one
USES: list[Case[tuple[list[str], list[str]], str]] = [
    Case("both are there", (["gpu", "nic"], ["nic", "gpu"]), ""),
    Case("one is not", (["nic", "gpu"], ["gpu", "gup"]), "Name one of these: nic, gpu"),
    Case("none is", ([], ["gpu"]), "It names none: add the claim there, or remove the name"),
    Case(
        "a few of many are listed",
        ([*"abcdefg"], ["x"]),
        "Name one of these: a, b, c, d, e and 2 more",
    ),
]


@pytest.mark.parametrize("field", ["containers", "initContainers"])
@pytest.mark.parametrize("case", USES, ids=ids)
def test_claims_that_a_container_uses(
    case: Case[tuple[list[str], list[str]], str], field: str
) -> None:
    """The API server refuses the pod, whichever scheduler it is for."""
    own, used = case.given
    uses = [{"name": "side"}, {"name": "x", "resources": {"claims": [{"name": it} for it in used]}}]
    claims = [{"name": it, "resourceClaimTemplateName": "good"} for it in own]
    pod = {"containers": [], field: uses, "resourceClaims": claims, "schedulerName": "other"}
    found = findings(LintInput(jobset(rjob("node", pod=pod)), KnownCluster()))

    path = f"{_CONTAINER}.{field}[1].resources.claims[{len(used) - 1}].name"
    message = f"{used[-1]!r} is no name in spec.resourceClaims of the pod, so no pod can be created"
    assert [it for it in found if it.startswith("unknown-claim")] == (
        [f"unknown-claim! {path}: {message}. {case.want}"] if case.want else []
    )
