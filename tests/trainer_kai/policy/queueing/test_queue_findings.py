"""What is reported about the numbers of a queue: each row is one fault, or none."""

from decimal import Decimal
from typing import Any

import pytest

from tests.support.case import Case, ids
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.kai_kinds import QueueResource, QueueResources, QueueSpec
from trainer_kai.policy.queueing.queue_findings import (
    QueueLevel,
    QueueRelatives,
    all_queue_relatives,
    queue_findings,
    queue_relatives,
)

FREE = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
NONE = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
Share = dict[str, Any]
MAX_WARNING = 256
ALONE = QueueRelatives()


def spec(parent: str = "", **resources: Share | None) -> QueueSpec:
    """Return a queue that leaves open what is not given; None leaves a resource out."""
    shares = {"gpu": NONE, "cpu": NONE, "memory": NONE, **resources}
    body = {"parentQueue": parent, "resources": {k: v for k, v in shares.items() if v is not None}}
    found: QueueSpec = decode(QueueSpec, encode(body))
    return found


def bounds(quota: float, limit: float = -1, **fields: float) -> Share:
    return {"quota": quota, "limit": limit, **fields}


def reported(written: QueueSpec, relatives: QueueRelatives = ALONE) -> str:
    """Return the findings as text: a blocking one has an exclamation mark."""
    found = queue_findings(written, relatives)
    assert all(len(str(it)) <= MAX_WARNING for it in found)
    return "\n".join(f"{it.code}{'!' if it.blocks else ''} {it}" for it in found)


OWN = [
    Case("KAI's default", spec(gpu=NONE, cpu=NONE, memory=NONE), ""),
    Case("as queue create writes it", spec(gpu=bounds(8, 16, overQuotaWeight=2)), ""),
    Case("GPUs excluded on purpose", spec(gpu={"limit": 0}), ""),
    Case(
        "CPU left out",
        spec(cpu=None),
        "absent! spec.resources.cpu: is absent, which means quota 0 and limit 0: no pod that "
        "requests CPU starts in this queue. Write cpu: {quota: 0, limit: -1, "
        "overQuotaWeight: 1}, with another quota if the queue has GPUs: the millicores that nodes "
        "have beside them",
    ),
    Case(
        "GPU left out",
        spec(gpu=None),
        "absent! spec.resources.gpu: is absent, which means quota 0 and limit 0: no pod that "
        "requests GPU starts in this queue. Write gpu: {quota: 0, limit: -1, "
        "overQuotaWeight: 1}, or gpu: {limit: 0} if intended",
    ),
    Case(
        "a quota without a limit",
        spec(gpu={"quota": 8}),
        "no-limit! spec.resources.gpu.limit: the limit is 0 or absent, so no pod that requests "
        "GPU starts in this queue. Write -1 for no limit of its own",
    ),
    Case(
        "a weight without a limit",
        spec(memory={"overQuotaWeight": 1}),
        "no-limit! spec.resources.memory.limit: the limit is 0 or absent, so no pod that "
        "requests memory starts in this queue. Write -1 for no limit of its own",
    ),
    Case(
        "a quota above the limit",
        spec(gpu=bounds(8, 4)),
        "quota-over-limit spec.resources.gpu.quota: the quota of 8 GPU is above the limit of "
        "4 GPU, and the queue gets no more than its limit. Write limit: 8 or more, or "
        "quota: 4 or less",
    ),
    Case(
        "cores for millicores",
        spec(cpu=bounds(-1, 4)),
        "unit spec.resources.cpu.limit: 4 millicores are 0.004 CPU. Write 4000 for 4 CPU",
    ),
    Case(
        "a quota in cores",
        spec(cpu=bounds(1.5)),
        "unit spec.resources.cpu.quota: 1.5 millicores are 0.0015 CPU. Write 1500 for 1.5 CPU",
    ),
    Case("one CPU", spec(cpu=bounds(1000, 1000)), ""),
    Case(
        "gigabytes for megabytes",
        spec(memory=bounds(0, 32)),
        "unit spec.resources.memory.limit: 32 megabytes are 0.032 GB. Write 32000 for 32 GB",
    ),
    Case("one gigabyte", spec(memory=bounds(1000, 1000)), ""),
    Case(
        "bytes for megabytes",
        spec(memory=bounds(0, 2**35)),
        "unit spec.resources.memory.limit: 34359738368 megabytes look like bytes. The unit is "
        "megabytes of 10^6 bytes: write 34360 for 34359738368 bytes, or -1 for unlimited",
    ),
    Case(
        "a negative number",
        spec(gpu=bounds(0, -2)),
        "negative spec.resources.gpu.limit: -2 counts as -1 (unlimited). "
        "Write -1, or a number from 0 on",
    ),
    Case(
        "a weight of -1",
        spec(gpu=bounds(8, overQuotaWeight=-1)),
        "weight spec.resources.gpu.overQuotaWeight: -1 counts as 1: -1 does not mean unlimited "
        "here. Write 1, or another number from 0 on",
    ),
]


@pytest.mark.parametrize("case", OWN, ids=ids)
def test_numbers_of_the_queue_itself(case: Case[QueueSpec, str]) -> None:
    """Each wrong number is reported in the unit of its field, with what to write."""
    assert reported(case.given) == case.want


def test_a_queue_without_resources_leaves_out_all_three() -> None:
    """A queue without `spec.resources` may use nothing."""
    codes = [it.code for it in queue_findings(QueueSpec(), QueueRelatives())]
    assert codes == ["absent", "absent", "absent"]


DIVISION = {
    "research": spec(gpu=bounds(16, 24), cpu=bounds(64000, 64000)),
    "team-a": spec("research", gpu=bounds(8)),
    "team-b": spec("research", gpu=bounds(4, 8)),
    "other": spec(gpu=bounds(0)),
    "small": spec(gpu=bounds(1)),
    "small-a": spec("small", gpu=bounds(2)),
    "closed": spec(cpu=None),
}
PARENT = "parent queue research"
BESIDE = (
    "unlimited-beside spec.resources.cpu.quota: the quota of CPU and memory is unlimited (-1), so "
    "{} with a GPU quota can reclaim none of it on GPU nodes. Write the millicores and megabytes "
    "that nodes have beside the GPUs of this queue, or 0"
)
AROUND = [
    Case("within the parent", ("team-c", spec("research", gpu=bounds(4, 24))), ""),
    Case("no quota below a parent with too little", ("team-c", spec("small", gpu=bounds(0))), ""),
    Case("a parent that does not exist", ("team-c", spec("nowhere", gpu=bounds(99))), ""),
    Case(
        "more than the parent has left",
        ("team-c", spec("research", gpu=bounds(6))),
        f"siblings-over-parent spec.resources.gpu.quota: the child queues of {PARENT} have "
        f"quotas of 18 GPU in total with this one, and the parent has a quota of 16 GPU. Raise "
        "the quota of the parent, or lower this one",
    ),
    Case("its own old quota does not count", ("team-a", spec("research", gpu=bounds(12))), ""),
    Case(
        "a limit above that of the parent",
        ("team-c", spec("research", cpu=bounds(0, 128000))),
        "limit-over-parent spec.resources.cpu.limit: the limit of 128000 millicores is above "
        f"the limit of 64000 millicores of {PARENT}, which counts for this queue too. Lower "
        "this limit, or raise that of the parent",
    ),
    Case(
        "a parent with a limit of 0",
        ("team-c", spec("closed")),
        "limit-over-parent! spec.resources.cpu.limit: parent queue closed has a limit of "
        "0 millicores, so no pod that requests CPU starts in this queue. Write a limit for "
        "the parent, or -1",
    ),
    Case(
        "unlimited beside siblings with quotas",
        ("team-c", spec("research", gpu=bounds(-1))),
        "unlimited spec.resources.gpu.quota: the quota is unlimited (-1), and sibling queues "
        "have a GPU quota (team-a, team-b): they can reclaim no GPU from this queue. Write the "
        "number of GPUs that the queue owns, or 0",
    ),
    Case(
        "unlimited at the top",
        ("open", spec(gpu=bounds(-1))),
        "unlimited spec.resources.gpu.quota: the quota is unlimited (-1), and sibling queues "
        "have a GPU quota (research, small): they can reclaim no GPU from this queue. Write the "
        "number of GPUs that the queue owns, or 0",
    ),
    Case(
        "CPU and memory unlimited beside siblings with GPUs",
        ("team-c", spec("research", cpu=FREE, memory=FREE)),
        BESIDE.format("2 sibling queues"),
    ),
    Case(
        "the same with GPUs of its own",
        ("team-a", spec("research", gpu=bounds(8), cpu=FREE, memory=FREE)),
        BESIDE.format("1 sibling queue"),
    ),
    Case("CPU unlimited where no sibling has GPUs", ("new", spec("nowhere", cpu=FREE)), ""),
    Case(
        "children with more than their parent",
        ("research", spec(gpu=bounds(8))),
        "children-over-quota spec.resources.gpu.quota: the child queues have quotas of 12 GPU "
        "in total, and this queue has a quota of 8 GPU. Write 12 or more, or lower the quotas "
        "of the child queues",
    ),
    Case(
        "a child with a larger limit",
        ("research", spec(gpu=bounds(12, 6))),
        "quota-over-limit spec.resources.gpu.quota: the quota of 12 GPU is above the limit of "
        "6 GPU, and the queue gets no more than its limit. Write limit: 12 or more, or "
        "quota: 6 or less\n"
        "child-over-limit spec.resources.gpu.limit: the limit of 6 GPU counts for the child "
        "queues too, and some have a larger limit of their own: team-b",
    ),
]


@pytest.mark.parametrize("case", AROUND, ids=ids)
def test_numbers_beside_those_of_other_queues(
    case: Case[tuple[str, QueueSpec], str],
) -> None:
    """A queue is compared with its parent, its siblings and its children."""
    name, written = case.given
    assert reported(written, queue_relatives(name, written, DIVISION)) == case.want


def test_all_relatives_are_those_of_each_queue() -> None:
    """The doctor calculates them together, admission for one queue."""
    queues = {**DIVISION, "self": spec("self", gpu=bounds(-1)), "lost": spec("nowhere")}
    together = all_queue_relatives(queues)
    for name, written in queues.items():
        alone = queue_relatives(name, written, queues)
        assert reported(written, together[name]) == reported(written, alone)


def test_an_only_child_with_an_unlimited_quota_is_reported_too() -> None:
    """The quota of the parent is enough to report an unlimited quota."""
    queues = {"research": DIVISION["research"]}
    written = spec("research", gpu=bounds(-1))
    [found] = queue_findings(written, queue_relatives("team-a", written, queues))
    assert found.message == (
        "the quota is unlimited (-1), and the parent queue has a GPU quota of 16 GPU. Write the "
        "number of GPUs that the queue owns, or 0"
    )


def test_siblings_are_named_up_to_three() -> None:
    """A message stays short however many siblings there are."""
    queues = {f"team-{i}": spec(gpu=bounds(1)) for i in range(9)}
    written = spec(gpu=bounds(-1))
    [found] = queue_findings(written, queue_relatives("new", written, queues))
    assert "(team-0, team-1, team-2 and 6 more)" in found.message


@pytest.mark.parametrize(
    "number", ["NaN", "sNaN", "Infinity", "-Infinity", "1e999999999", "-1e9999999", "1e-999999999"]
)
def test_no_number_is_too_strange(number: str) -> None:
    """No number that a client can send raises an error."""
    odd = Decimal(number)
    share = QueueResource(quota=odd, limit=odd, over_quota_weight=odd)
    written = QueueSpec(resources=QueueResources(gpu=share, cpu=share, memory=share))
    relatives = QueueRelatives(
        written, QueueLevel({"a": written, "b": written}), QueueLevel({"c": written})
    )
    reported(written, relatives)
    for other in DIVISION.values():
        reported(other, relatives)
        reported(written, QueueRelatives(other, QueueLevel(DIVISION), QueueLevel(DIVISION)))
