"""Where the pods of a workload would start on an empty cluster: domains, nodes, devices of claims.

The planner of the scheduler places one workload alone, as `simulate` does with everything.
"""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from scheduler.state.inputs import Cluster
from trainer_kai.api.cluster_kinds import Namespace, Node, PriorityClass
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.device_kinds import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceClaimTemplate,
    ResourceSlice,
)
from trainer_kai.api.kai_kinds import Queue, Topology
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import Resource
from trainer_kai.api.trainjob import Runtime
from trainer_kai.cli.commands.plan.placements import Placement
from trainer_kai.cli.commands.plan.preview import Preview
from trainer_kai.cli.commands.simulate.simulation import (
    SimulationOptions,
    SimulationResult,
    prepare_cluster,
    run,
)
from trainer_kai.cli.input.cluster import InputCluster
from trainer_kai.cli.input.pod_owners import TEMPLATE_KINDS
from trainer_kai.errors import ConfigError
from trainer_kai.policy.workloads.kinds import KIND_OF_RESOURCE
from trainer_kai.policy.workloads.workload import ObjectKey

_SUSPEND: Final = ("spec", "suspend")  # of TrainJobs
_UNBOUND: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


class TrialObjects(NamedTuple):
    """The objects of the cluster; pods are not among them."""

    nodes: Mapping[str, Node]
    queues: Mapping[str, Queue]
    priority_classes: Mapping[str, PriorityClass]
    topologies: Mapping[str, Topology]
    namespaces: Mapping[str, Namespace]
    runtimes: Mapping[tuple[str, Key], Runtime]
    device_classes: Mapping[str, DeviceClass]
    resource_slices: Mapping[str, ResourceSlice]
    device_taint_rules: Mapping[str, DeviceTaintRule]
    claim_templates: Mapping[Key, ResourceClaimTemplate]
    resource_claims: Mapping[Key, ResourceClaim]


def trial(
    preview: Preview,
    kind: Resource[Any],
    it: Any,
    objects: TrialObjects,
    options: SimulationOptions,
) -> tuple[Placement, ...]:
    """Place a workload alone; without a queue of its name it has one without bounds."""
    inputs = InputCluster(_cluster(objects, preview.queue.queue), runtimes={**objects.runtimes})
    started = _started(kind, it)
    key = started.metadata.key
    if (kind.group, kind.kind) in TEMPLATE_KINDS:
        inputs.pod_owners[ObjectKey(kind.kind, *key)] = kind, started
    else:
        inputs.cluster.workload_objects[kind][key] = started
    try:
        result = run(prepare_cluster(inputs, options), options)
    except ConfigError as error:
        message = "; ".join(map(str, error.faults))
        return tuple(
            Placement(row.name, reason="NotTried", message=message) for row in preview.podgroups
        )
    names = [row.name for row in preview.podgroups]
    return tuple([_placement(name, key.namespace, result) for name in names])


def _cluster(objects: TrialObjects, queue: str) -> Cluster:
    added = {} if queue in objects.queues else {queue: _unbound_queue(queue)}
    return Cluster(
        nodes={**objects.nodes},
        queues={**objects.queues, **added},
        priority_classes={**objects.priority_classes},
        topologies={**objects.topologies},
        namespaces={**objects.namespaces},
        device_classes={**objects.device_classes},
        resource_slices={**objects.resource_slices},
        device_taint_rules={**objects.device_taint_rules},
        claim_templates={**objects.claim_templates},
        resource_claims={
            key: replace(claim, status=ResourceClaimStatus())
            for key, claim in objects.resource_claims.items()
        },
    )


def _unbound_queue(name: str) -> Queue:
    resources = dict.fromkeys(("gpu", "cpu", "memory"), _UNBOUND)
    return decode(Queue, encode({"metadata": {"name": name}, "spec": {"resources": resources}}))


def _started(kind: Resource[Any], it: Any) -> Any:
    """Return a workload as if it were new, and not suspended."""
    fields = json.loads(encode(it))
    fields.pop("status", None)
    adapter = KIND_OF_RESOURCE.get(kind)
    *parents, last = adapter.suspend_path if adapter is not None else _SUSPEND
    at = fields
    for name in parents:
        at = at.get(name) or {}
    at.pop(last, None)
    return decode(kind.struct, encode(fields))


def _placement(name: str, namespace: str, result: SimulationResult) -> Placement:
    (cycle,) = result.document["cycles"]
    key = Key(namespace, name)
    own = {pod.name for pod, group in result.podgroup_of_pod.items() if group == key}
    pods = tuple(
        {name: it[name] for name in ("pod", "node", "claims") if name in it}
        for it in cycle["binds"]
        if it["namespace"] == namespace and it["pod"] in own
    )
    reserved = tuple(
        {"node": it["node"], "count": it["count"]}
        for it in cycle["reservations"]
        if (it["namespace"], it["podGroup"]) == key
    )
    placement = Placement(name, pods, reserved)
    for it in cycle["unschedulable"]:
        if (it["namespace"], it["podGroup"]) == key:
            placement = placement._replace(reason=it["reason"], message=it["message"])
    level = result.domain_levels.get(key, "")
    if not level or not pods:
        return placement
    domain_of = {it.name: it.domain or "" for it in result.end_state.nodes}
    domains: Counter[str] = Counter()
    for node, count in placement.nodes().items():
        domains[domain_of[node]] += count
    return placement._replace(level=level, domains=dict(sorted(domains.items())))
