"""Names are KAI's, and always such that they can be written."""

import pytest

from tests.support.case import Case, ids
from trainer_kai.api.syntax import dns_label_fault
from trainer_kai.policy.podgroups.grouping import (
    MAIN,
    owner_name,
    podgroup_name,
    podset_name,
    podset_name_prefix,
)

UID = "11111111-2222-3333-4444-555555555555"
LONG = "trainer-" * 6 + "worker"  # 54 characters; a Job called x-LONG-0 is allowed
# what it is made of -> the name of a group
GROUPS = [
    Case("a JobSet that is one group", MAIN, f"pg-job-{UID}"),
    Case("one of several", "node", f"pg-job-{UID}-node"),
    Case("a replicatedJob in small letters is not all of it", "main", f"pg-job-{UID}-main"),
]
# a replicatedJob and an index -> the sub-group
PODSETS = [
    Case("as a label says it", ("node", "3"), "node-replica-3"),
    Case("as a number", ("node", 3), "node-replica-3"),
    Case("as long as can be", ("n" * 48, 123456), f"{'n' * 48}-replica-123456"),
    Case("longer", (LONG, 0), f"{LONG[:39]}-3953057b-replica-0"),
]


@pytest.mark.parametrize("case", GROUPS, ids=ids)
def test_groups(case: Case[str, str]) -> None:
    """After the JobSet, its uid, and what tells it from its siblings."""
    assert podgroup_name("job", UID, case.given) == case.want


@pytest.mark.parametrize("case", PODSETS, ids=ids)
def test_podset_names(case: Case[tuple[str, int | str], str]) -> None:
    """After the replicatedJob and the index of the Job; always the value of a label."""
    name = podset_name(*case.given)

    assert name == case.want
    assert dns_label_fault(name) is None
    assert name == f"{podset_name_prefix(case.given[0])}{case.given[1]}"


def test_long_names_differ_where_their_replicated_jobs_do() -> None:
    """Also when they differ only where they are cut."""
    assert podset_name(f"{LONG}a", 0) != podset_name(f"{LONG}b", 0)


def test_what_people_read_of_a_group() -> None:
    """Its JobSet, whatever the suffix; any other name is returned as it is."""
    for suffix in (MAIN, "node", "a-b"):
        assert owner_name(podgroup_name("my-job", UID, suffix)) == "my-job"
    assert owner_name("pg-by-hand") == "pg-by-hand"
