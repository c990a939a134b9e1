"""Random constraints of pods on nodes and on other pods."""

from random import Random
from typing import Any, Final, TypeAlias

Spec: TypeAlias = dict[str, Any]

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_KEYS: Final = ("kubernetes.io/hostname", "kubernetes.io/hostname", "zone")


def add_constraints(random: Random, spec: Spec, app: str, nodes: list[str]) -> None:
    """Write some wishes into the spec of a pod with this label."""
    if random.random() < 0.08:
        spec["nodeSelector"] = {"zone": random.choice(("east", "west"))}
    if random.random() < 0.3:
        spec["tolerations"] = [_toleration(random)]
    affinity: Spec = {}
    if random.random() < 0.08:
        affinity["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": _terms(random, nodes)}}
    if random.random() < 0.1:
        affinity["podAntiAffinity"] = {_REQUIRED: [_affinity_term(random, app)]}
    if random.random() < 0.06:
        terms = range(random.choice((1, 1, 2)))
        affinity["podAffinity"] = {_REQUIRED: [_affinity_term(random, app) for _ in terms]}
    if affinity:
        spec["affinity"] = affinity
    if random.random() < 0.1:
        spec["topologySpreadConstraints"] = [_spread(random, app)]
    if random.random() < 0.08:
        spec["containers"][0]["ports"] = [_port(random)]


def _toleration(random: Random) -> Spec:
    return random.choice(
        (
            {"operator": "Exists"},
            {"key": "dedicated", "operator": "Exists"},
            {"key": "dedicated", "operator": "Equal", "value": "x", "effect": "NoSchedule"},
            {"key": "flaky", "value": "y"},
            {"key": "flaky", "operator": "Exists", "effect": "NoExecute"},
        )
    )


def _terms(random: Random, nodes: list[str]) -> list[Spec]:
    return [_term(random, nodes) for _ in range(random.choice((1, 1, 2)))]


def _term(random: Random, nodes: list[str]) -> Spec:
    wish: Spec = random.choice(
        (
            {"key": "zone", "operator": "In", "values": ["east", "north"]},
            {"key": "zone", "operator": "NotIn", "values": ["east"]},
            {"key": "zone", "operator": "Exists"},
            {"key": "size", "operator": "DoesNotExist"},
            {"key": "size", "operator": "Gt", "values": ["1"]},
            {"key": "size", "operator": "Lt", "values": ["3"]},
            {"key": "metadata.name", "operator": "In", "values": random.sample(nodes, 1)},
            {},
        )
    )
    if not wish:
        return {}
    return {"matchFields" if wish["key"] == "metadata.name" else "matchExpressions": [wish]}


def _affinity_term(random: Random, app: str) -> Spec:
    """Return a term that means pods like itself, or like others, here or elsewhere."""
    term: Spec = {"topologyKey": random.choice(_KEYS), "labelSelector": _selector(random, app)}
    if random.random() < 0.1:
        term["namespaces"] = random.choice((["a"], ["b"], ["a", "b"]))
    elif random.random() < 0.1:
        term["namespaceSelector"] = {}
    return term


def _selector(random: Random, app: str) -> Spec:
    if random.random() < 0.7:
        return {"matchLabels": {"app": app}}
    operator = random.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    wish: Spec = {"key": "app", "operator": operator}
    if operator in ("In", "NotIn"):
        wish["values"] = ["shared"]
    return {"matchExpressions": [wish]}


def _spread(random: Random, app: str) -> Spec:
    spread: Spec = {
        "maxSkew": random.choice((1, 1, 2)),
        "topologyKey": random.choice(_KEYS),
        "whenUnsatisfiable": random.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
        "labelSelector": _selector(random, app),
    }
    if random.random() < 0.1 and spread["whenUnsatisfiable"] == "DoNotSchedule":
        spread["minDomains"] = 2
    if random.random() < 0.1:
        spread["nodeTaintsPolicy"] = "Honor"
    if random.random() < 0.1:
        spread["nodeAffinityPolicy"] = "Ignore"
    return spread


def _port(random: Random) -> Spec:
    port: Spec = {"containerPort": 80, "hostPort": random.choice((80, 80, 81))}
    if random.random() < 0.2:
        port["hostIP"] = random.choice(("10.0.0.1", "10.0.0.2", "0.0.0.0"))
    if random.random() < 0.1:
        port["protocol"] = "UDP"
    return port
