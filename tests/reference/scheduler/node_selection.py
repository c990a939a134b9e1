"""Which nodes a pod may run on by taints, labels and name, and by the form of their GPUs."""

from collections.abc import Mapping
from typing import Any

from tests.reference.scheduler.model import NodeInfo, PodInfo
from tests.reference.scheduler.resources import gpu_count, is_mig


def matches_gpu_mode(pod: PodInfo, node_info: NodeInfo) -> bool:
    """Say whether a node offers GPUs in the form that a pod requests: rules 27a, 27g and 27h."""
    strategy = node_info.labels.get("nvidia.com/mig.strategy", "") if node_info.is_mig else ""
    requests_mig = any(is_mig(name) and amount for name, amount in pod.requests.items())
    if pod.has_mig_annotation or (pod.share and node_info.is_mig):
        return False
    if requests_mig and (
        not node_info.is_mig or strategy == "single" or node_info.is_closed_to_mig
    ):
        return False
    if gpu_count(pod.requests) and strategy == "mixed":
        return False
    return pod.share is None or pod.share.on(node_info.name) is not None


def tolerates(spec: Mapping[str, Any], node_info: NodeInfo) -> bool:
    """Say whether a pod puts up with all taints that keep pods away."""
    return all(
        any(_tolerates_taint(toleration, taint) for toleration in spec.get("tolerations", ()))
        for taint in node_info.taints
        if taint.get("effect") in ("NoSchedule", "NoExecute")
    )


def selects_node(spec: Mapping[str, Any], node_info: NodeInfo) -> bool:
    """Say whether nodeSelector and required node affinity mean this node."""
    for key, value in spec.get("nodeSelector", {}).items():
        if node_info.labels.get(key) != value:
            return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_term_matches(term, node_info) for term in required.get("nodeSelectorTerms", ()))


def labels_match(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Say whether a selector means these labels; none means nothing, an empty one everything."""
    if selector is None:
        return False
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    return all(_matches(one, labels) for one in selector.get("matchExpressions", ()))


def _tolerates_taint(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    key, operator = toleration.get("key", ""), toleration.get("operator") or "Equal"
    if key and key != taint["key"]:
        return False
    if operator == "Exists":
        return True
    return bool(key) and toleration.get("value", "") == taint.get("value", "")


def _term_matches(term: Mapping[str, Any], node_info: NodeInfo) -> bool:
    labels, fields = term.get("matchExpressions", ()), term.get("matchFields", ())
    if not labels and not fields:
        return False
    return all(_matches(one, node_info.labels) for one in labels) and all(
        _matches(one, {"metadata.name": node_info.name}) for one in fields
    )


def _matches(wish: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    operator, values, has = wish["operator"], wish.get("values", ()), wish["key"] in labels
    value = labels.get(wish["key"], "")
    if operator in ("Gt", "Lt"):
        return has and _compared(operator, value, values[0])
    return {
        "In": has and value in values,
        "NotIn": not has or value not in values,
        "Exists": has,
        "DoesNotExist": not has,
    }[operator]


def _compared(operator: str, value: str, bound: str) -> bool:
    try:
        return int(value) > int(bound) if operator == "Gt" else int(value) < int(bound)
    except ValueError:
        return False
