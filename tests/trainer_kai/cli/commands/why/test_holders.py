"""Who holds the room, and how old the Lease of the scheduler is."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from tests.support.case import Case, ids
from tests.support.workloads.simulate_objects import queue
from trainer_kai.api.cluster_kinds import Lease
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.kai_kinds import PodGroup, Queue
from trainer_kai.cli.commands.why.holders import holder_notes, lease_note

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
QUEUES: Final = {
    it.metadata.name: it
    for it in (
        decode(Queue, encode(fields))
        for fields in (queue("top", 16), queue("a", 16, parent="top"), queue("guests", 0))
    )
}


def podgroup(name: str, queue_name: str, gpus: int) -> PodGroup:
    fields: dict[str, Any] = {
        "metadata": {"namespace": "default", "name": name},
        "spec": {"queue": queue_name},
        "status": {"resourcesStatus": {"allocated": {"nvidia.com/gpu": str(gpus)}}},
    }
    return decode(PodGroup, encode(fields))


NIGHT: Final = podgroup("pg-night-01234567-0123-0123-0123-0123456789ab", "guests", 24)
DAY: Final = podgroup("day", "a", 8)

# the message, and what runs -> the notes
HOLDERS: list[Case[tuple[str, list[PodGroup]], list[str]]] = [
    Case(
        "borrowed room",
        ("A pod requests 8 GPU", [DAY, NIGHT]),
        [
            (
                "24 of 32 used GPUs are borrowed, that is over the quota of their queue, by "
                "default/night of queue guests (24)"
            )
        ],
    ),
    Case(
        "room within quotas",
        ("A pod requests 8 GPU", [DAY]),
        ["8 GPUs are used within quotas, by default/day of queue a (8)"],
    ),
    Case(
        "the limit of a parent",
        ("Queue top has a limit of 8 GPU and uses 8 GPU; the PodGroup", [DAY, NIGHT]),
        ["queue top uses 8 GPUs: default/day of queue a (8)"],
    ),
    Case("nothing runs", ("A pod requests 8 GPU", []), []),
]


@pytest.mark.parametrize("case", HOLDERS, ids=ids)
def test_who_holds_the_room(case: Case[tuple[str, list[PodGroup]], list[str]]) -> None:
    """By workload and queue, the largest first."""
    message, podgroups = case.given
    assert [*holder_notes(message, podgroups, QUEUES)] == case.want


@pytest.mark.parametrize(("age_s", "is_told"), [(2, False), (40, True)])
def test_the_age_of_the_lease(age_s: int, is_told: bool) -> None:
    """A stopped scheduler is seen before its Lease has expired for long."""
    renewed = (NOW - timedelta(seconds=age_s)).isoformat()
    spec = {"holderIdentity": "pod-1_x", "renewTime": renewed}
    lease = decode(Lease, encode({"metadata": {"namespace": "n", "name": "l"}, "spec": spec}))
    notes = [*lease_note((lease,), NOW)]

    assert bool(notes) is is_told
    assert all(it.startswith(f"scheduler pod-1 renewed Lease n/l {age_s}s ago") for it in notes)
