"""How much one pod may say."""

from typing import Any

import msgspec
import pytest

from tests.support.case import Case, ids
from trainer_kai.api.bounds import (
    MOST_EXPRESSIONS,
    MOST_PORTS,
    MOST_RESOURCES,
    MOST_TERMS,
    MOST_TOLERATIONS,
    MOST_VALUES,
    MOST_VOLUMES,
)
from trainer_kai.api.pod import PodSpec
from trainer_kai.policy.pods.requests import has_match_label_keys, spec_limit_fault, term_count

_MUST = "requiredDuringSchedulingIgnoredDuringExecution"


def _resources(number: int) -> dict[str, Any]:
    """Return a pod that says all of it more than once."""
    names = {f"r{n}": "1" for n in range(number - 1)}
    containers = [{"resources": {"limits": names, "requests": names}}, {"resources": {}}]
    return {"containers": containers, "initContainers": containers, "overhead": {"o": "1"}}


def _ports(number: int) -> dict[str, Any]:
    ports = [{"containerPort": n + 1, "hostPort": n + 1} for n in range(number)]
    return {"containers": [{"ports": ports}, {"ports": ports}]}


def _terms(number: int, **more: Any) -> dict[str, Any]:
    spread = {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", **more}
    requirement = {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}
    term = {"topologyKey": "z"}
    return {
        "affinity": {
            "podAffinity": {_MUST: [term]},
            "podAntiAffinity": {_MUST: [term] * (number - 2)},
        },
        "topologySpreadConstraints": [spread, requirement],
    }


def _nodes(number: int, values: int = 0) -> dict[str, Any]:
    requirement = {"key": "k", "operator": "In", "values": [""] * values}
    terms = [
        {
            "matchExpressions": [requirement] * (number // 2),
            "matchFields": [requirement] * (number // 2),
        }
    ]
    return {
        "affinity": {"nodeAffinity": {_MUST: {"nodeSelectorTerms": terms}}},
        "nodeSelector": {f"k{n}": "v" for n in range(number % 2)},
    }


def _pods(values: int) -> dict[str, Any]:
    each = values // 4
    requirement = {"key": "k", "operator": "In", "values": [""] * each}
    selector = {"matchLabels": {f"k{n}": "v" for n in range(2)}, "matchExpressions": [requirement]}
    term = {
        "topologyKey": "z",
        "labelSelector": selector,
        "namespaceSelector": {"matchExpressions": [requirement]},
        "namespaces": [""] * each,
        "matchLabelKeys": ["a"],
        "mismatchLabelKeys": ["b"],
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "z",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchExpressions": [{**requirement, "values": [""] * (each - 5)}]},
        "matchLabelKeys": ["a"],
    }
    return {
        "affinity": {"podAntiAffinity": {_MUST: [term]}},
        "topologySpreadConstraints": [spread],
    }


# a pod with a given number of something → the limit, and the fault of one more
BOUNDS: list[Case[Any, tuple[int, str]]] = [
    Case(
        "resources are counted",
        _resources,
        (MOST_RESOURCES, "spec.containers[*].resources: the pod requests {} resources"),
    ),
    Case(
        "host ports are counted",
        _ports,
        (MOST_PORTS, "spec.containers[*].ports: the pod uses {} host ports"),
    ),
    Case(
        "terms about other pods are counted",
        _terms,
        (
            MOST_TERMS,
            "spec.affinity, spec.topologySpreadConstraints: the pod has {} terms about other pods",
        ),
    ),
    Case(
        "selector expressions are counted",
        _nodes,
        (MOST_EXPRESSIONS, "spec.nodeSelector, spec.affinity: the pod has {} selector expressions"),
    ),
    Case(
        "values of expressions are counted",
        lambda number: {
            **_nodes(2, number // 2),
            "nodeSelector": {f"k{n}": "v" for n in range(number % 2)},
        },
        (
            MOST_VALUES,
            "spec.nodeSelector, spec.affinity: the pod names {} values in selector expressions",
        ),
    ),
    Case(
        "tolerations are counted",
        lambda number: {"tolerations": [{"key": "k"}] * number},
        (MOST_TOLERATIONS, "spec.tolerations: the pod has {} tolerations"),
    ),
    Case(
        "volumes are counted",
        lambda number: {"volumes": [{"name": "v"}] * number},
        (MOST_VOLUMES, "spec.volumes: the pod has {} volumes"),
    ),
]


def _spec(fault: dict[str, Any]) -> PodSpec:
    return msgspec.convert(fault, PodSpec)


@pytest.mark.parametrize("case", BOUNDS, ids=ids)
def test_bounds(case: Case[Any, tuple[int, str]]) -> None:
    """The most that is looked at is fine, and one more is not."""
    most, message = case.want

    assert spec_limit_fault(_spec(case.given(most))) is None
    want = f"{message.format(most + 1)}, but at most {most} are supported; name at most {most}"
    assert spec_limit_fault(_spec(case.given(most + 1))) == want


def test_values_of_terms() -> None:
    """Labels, namespaces and the labels of the pod itself count as well."""
    assert spec_limit_fault(_spec(_pods(MOST_VALUES))) is None
    want = (
        f"spec.nodeSelector, spec.affinity: the pod names {MOST_VALUES + 4} values in selector "
        "expressions"
    )
    most = f"but at most {MOST_VALUES} are supported; name at most {MOST_VALUES}"
    assert spec_limit_fault(_spec(_pods(MOST_VALUES + 4))) == f"{want}, {most}"


def test_ports_in_the_network_of_the_node() -> None:
    """Each port of a container is one, needed or not: what is to go is named."""
    fault = {"hostNetwork": True, **_ports(MOST_PORTS + 1)}

    assert spec_limit_fault(_spec(fault)) == (
        f"spec.containers[*].ports: the pod uses {MOST_PORTS + 1} host ports, but at most "
        f"{MOST_PORTS} are supported; name at most {MOST_PORTS}. With hostNetwork each "
        "containerPort is a host port: remove containerPorts that need no host port"
    )


def test_nothing() -> None:
    assert spec_limit_fault(PodSpec()) is None
    assert term_count(PodSpec()) == 0


@pytest.mark.parametrize(
    ("fault", "want"),
    [
        ({}, False),
        (_terms(3), False),
        (_terms(3, matchLabelKeys=["a"]), True),
        (_pods(40), True),
    ],
)
def test_labels_of_the_pod_itself(fault: dict[str, Any], want: bool) -> None:
    """Then pods of one spec may speak of different others."""
    assert has_match_label_keys(_spec(fault)) is want
