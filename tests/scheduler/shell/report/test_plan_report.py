"""What is reported about waiting PodGroups, as far as autoscalers and KAI act on it."""

import pytest

from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.shell.report.plan_report import plan_report
from scheduler.state.commands import commands_from_plan
from tests.support.state.objects import encode_objects, group, node, pod, queue
from trainer_kai.api.meta import Key

_FREE = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


@pytest.mark.parametrize(("limit", "marked"), [(-1, 2), (2, 0)], ids=["no room", "no quota"])
def test_a_preemption_delay_marks_pods_for_autoscalers(limit: int, marked: int) -> None:
    """Another node would do; where a limit is in the way it would not."""
    gpu = {"quota": 4, "limit": limit, "overQuotaWeight": 1}
    delayed = group(
        "g",
        minMember=2,
        preemptionDelay="1h",
        priorityClassName="high",
        meta={"creationTimestamp": "2026-01-05T07:59:59Z"},
    )
    high = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 75}
    encoded = encode_objects(
        queue(resources={"cpu": _FREE, "memory": _FREE, "gpu": gpu}),
        *(node("a", gpu=2), high, delayed, pod("g0", "g"), pod("g1", "g")),
        *(pod("l0", node="a"), pod("l1", node="a")),
    )
    made = plan(encoded.snapshot, build_policies(PolicySelection()))
    report = plan_report(encoded, made, commands_from_plan(encoded, made)).podgroups[Key("ns", "g")]

    assert (report.reason, len(report.pods)) == ("PreemptionDelay", marked)


def test_a_pod_that_fits_no_node_marks_no_pods_while_its_queue_is_full() -> None:
    """An autoscaler would add a node, and the limit would keep the pod off it."""
    gpu = {"quota": 2, "limit": 2, "overQuotaWeight": 1}
    encoded = encode_objects(
        queue(resources={"cpu": _FREE, "memory": _FREE, "gpu": gpu}),
        *(
            node("a", gpu=2),
            group("g"),
            pod("g0", "g", asks={"nvidia.com/gpu": "4"}),
            pod("l0", node="a"),
        ),
    )
    made = plan(encoded.snapshot, build_policies(PolicySelection()))
    report = plan_report(encoded, made, commands_from_plan(encoded, made)).podgroups[Key("ns", "g")]

    assert (report.reason, report.pods) == ("NoNodeMatches", ())
    assert report.message.endswith(
        ". Also: Queue q has a limit of 2 GPU and uses 1 GPU; the PodGroup requests 4 GPU more"
    )


def test_a_required_topology_asks_for_no_node() -> None:
    """An autoscaler does not know in which domain a node would help; the message says why."""
    near = {"topology": "dc", "requiredTopologyLevel": "rack"}
    found = encode_objects(node("a", gpu=2), group("g", topologyConstraint=near), pod("p", "g"))
    made = plan(found.snapshot, build_policies(PolicySelection()))
    report = plan_report(found, made, commands_from_plan(found, made)).podgroups[Key("ns", "g")]

    assert (report.reason, report.kai_reason, report.pods) == ("TopologyUnfit", "TopologyUnfit", ())
    assert report.message.startswith(
        "The topologyConstraint of the PodGroup names Topology dc, which does not exist"
    )
