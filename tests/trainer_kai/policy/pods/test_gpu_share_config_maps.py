"""The form of the names by which a container finds its shared GPUs."""

import pytest

from tests.support.case import Case, ids
from trainer_kai.api.pod import Container, PodSpec
from trainer_kai.policy.pods.gpu_share_config_maps import (
    SharingContainer,
    config_map_prefix,
    is_config_map_prefix,
    sharing_container,
)

_FIRST = SharingContainer("containers", 0)
# a prefix, and whether it is one
PREFIXES: list[Case[str, bool]] = [
    Case("of a Job", "train-0-x1y2z3a-shared-gpu", True),
    Case("of a name with dots", "a.b-x1y2z3a-shared-gpu", True),
    Case("of a name that KAI cut", "train--x1y2z3a-shared-gpu", True),
    Case("without a random part", "train-shared-gpu", False),
    Case("with a short one", "train-x1-shared-gpu", False),
    Case("without a name", "-x1y2z3a-shared-gpu", False),
    Case("with an empty part", "a..b-x1y2z3a-shared-gpu", False),
    Case("as a path", "../a-x1y2z3a-shared-gpu", False),
    Case("a prefix with more behind is none", "a-x1y2z3a-shared-gpu\n", False),
    Case("a prefix in capitals is none", "A-x1y2z3a-shared-gpu", False),
    Case("a prefix that is too long is none", f"{'a' * 45}-x1y2z3a-shared-gpu", False),
    Case("an empty text is no prefix", "", False),
]


@pytest.mark.parametrize("case", PREFIXES, ids=ids)
def test_the_form_of_a_prefix(case: Case[str, bool]) -> None:
    """Nothing but the form that admission of KAI and of ours writes."""
    assert is_config_map_prefix(case.given) == case.want


def test_what_admission_writes_is_a_prefix() -> None:
    """Also of the longest names."""
    for base in ("a", "a.b", "a-" * 60, "x." * 60):
        assert is_config_map_prefix(config_map_prefix(base, "x1y2z3a", _FIRST))


def test_no_name_means_the_first_container() -> None:
    """An empty annotation is none, as templates write it."""
    spec = PodSpec(containers=(Container(name="a"), Container(name="b")))

    chosen = [sharing_container(it, spec) for it in ({}, {"gpu-fraction-container-name": ""})]

    assert chosen == [_FIRST, _FIRST]
    assert sharing_container({"gpu-fraction-container-name": "c"}, spec) is None
