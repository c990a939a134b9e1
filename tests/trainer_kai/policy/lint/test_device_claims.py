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
