"""From the settings of a site to its policies."""

import pytest

from scheduler.core.policy import Seats
from scheduler.policies.quota import within_limit
from scheduler.policies.registry import ACTIONS, FIXED, PLUGINS, choice_faults, choose
from scheduler.policies.victims import VICTIMS
from scheduler.shell.choice import choice_of, gpu_resources_of
from tests.support.snapshots import shape
from trainer_kai import settings
from trainer_kai.settings import ALWAYS_ON, OPTIONAL, Policies


def test_what_is_not_said_is_as_kai_has_it() -> None:
    """Binpack, and quotas hold."""
    policies = choose(choice_of(Policies()))

    assert within_limit in policies.quotas
    assert len(policies.unit_order) == 2


def test_what_a_running_scheduler_leaves_to_its_warden() -> None:
    """No plan evicts who is short: whoever watches knows better how long."""
    actions = ("allocate", "consolidation", "reclaim", "preempt")
    assert choose(choice_of(Policies())).actions == actions


def test_a_site_may_take_nothing_from_anybody() -> None:
    """It says what is to be done."""
    assert choose(choice_of(Policies(actions="allocate"))).actions == ("allocate",)


def test_settings_know_the_names_of_policies() -> None:
    """What is let in by the settings is what there is, but for what the warden does."""
    assert {*OPTIONAL, *ALWAYS_ON} == {*PLUGINS}
    assert {*ALWAYS_ON} == {*FIXED}
    assert [*settings.ACTIONS, "stalegangeviction"] == [*ACTIONS]


def test_nothing_is_left_to_refuse() -> None:
    """Whatever the settings let in is meant by something."""
    allowed = Policies(disabled=",".join(OPTIONAL))
    assert [*choice_faults(choice_of(allowed))] == []


def test_a_policy_can_be_left_out() -> None:
    """With blanks between the names or without."""
    policies = choose(choice_of(Policies(disabled="elastic, proportion")))

    assert (policies.quotas, len(policies.unit_order)) == ((), 1)


@pytest.mark.parametrize(("placement", "likes_room"), [("binpack", False), ("spread", True)])
def test_placement_of_each_kind(placement: str, *, likes_room: bool) -> None:
    """GPUs and CPUs are placed each in its own way."""
    settings = Policies.model_validate({"gpu_placement": placement})
    (_, score) = choose(choice_of(settings)).scores[-1]
    empty = Seats(8, 8, 8, fits_now=True, has_gpu=True, is_nominated=False)
    full = empty._replace(room=1)

    assert (score(shape(gpu=1), empty) > score(shape(gpu=1), full)) is likes_room
    assert score(shape(), full) > score(shape(), empty)


def test_who_loses_first() -> None:
    """As KAI has it, unless a site says otherwise."""
    settings = Policies.model_validate({"victims": "least-work-lost"})

    assert choose(choice_of(Policies())).victims is None
    assert choose(choice_of(settings)).victims is VICTIMS["least-work-lost"]


def test_what_budgets_mean() -> None:
    """They are best effort in reclaim, unless a site says otherwise."""
    settings = Policies.model_validate({"disruption_budgets": "always"})

    assert not choose(choice_of(Policies())).keeps_budgets
    assert choose(choice_of(settings)).keeps_budgets


def test_which_resources_are_gpus() -> None:
    """Those of two makers, unless a site says otherwise."""
    assert gpu_resources_of(Policies()) == ("nvidia.com/gpu", "amd.com/gpu")
    assert gpu_resources_of(Policies(gpu_resources="gpu.intel.com/i915")) == ("gpu.intel.com/i915",)
