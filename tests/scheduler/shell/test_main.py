"""From the settings of a site to its policies, and what the process waits for."""

import asyncio
import json

import pytest

from scheduler.core.model.result import NodeFeatures
from scheduler.policies.registry import (
    VICTIM_ORDERS,
    build_policies,
    selection_errors,
    within_limit,
)
from scheduler.shell.cycle import Cycle
from scheduler.shell.main import (
    ClusterInformers,
    gpu_resources,
    policy_selection,
    state_options,
)
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import StateOptions
from tests.support.clock import VirtualClock
from tests.support.fakes.fake_kube import FakeKube
from tests.support.snapshot.builder import signature
from trainer_kai.api.scheduler_names import ACTIONS, OPTIONAL_PLUGINS
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.process.context import ClientObserver
from trainer_kai.kube.process.runner import Runner
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiResponse
from trainer_kai.policy.leaving_nodes import LeavingSigns
from trainer_kai.service.health import Health
from trainer_kai.service.log import logger
from trainer_kai.service.metrics import Metrics
from trainer_kai.service.settings import (
    GpuSharingSettings,
    LeavingNodeSettings,
    PolicySettings,
    SchedulerSettings,
)


def test_defaults_are_those_of_kai() -> None:
    """Binpack, and quotas hold."""
    policies = build_policies(policy_selection(PolicySettings()))

    assert within_limit in policies.quotas
    assert len(policies.podgroup_order) == 2


def test_a_plan_has_all_actions_by_default() -> None:
    """That stale gangs are evicted is decided by plans too."""
    assert build_policies(policy_selection(PolicySettings())).actions == ACTIONS


def test_a_configuration_may_evict_no_pod() -> None:
    """The site names the actions."""
    assert build_policies(policy_selection(PolicySettings(actions="allocate"))).actions == (
        "allocate",
    )


def test_nothing_is_left_to_refuse() -> None:
    """Whatever the settings let in is meant by something."""
    allowed = PolicySettings(disabled=",".join(OPTIONAL_PLUGINS))
    assert [*selection_errors(policy_selection(allowed))] == []


def test_a_policy_can_be_left_out() -> None:
    """With blanks between the names or without."""
    policies = build_policies(policy_selection(PolicySettings(disabled="elastic, proportion")))

    assert (policies.quotas, len(policies.podgroup_order)) == ((), 1)


@pytest.mark.parametrize(("placement", "likes_room"), [("binpack", False), ("spread", True)])
def test_placement_of_each_kind(placement: str, *, likes_room: bool) -> None:
    """GPUs and CPUs are placed each in its own way."""
    settings = PolicySettings.model_validate({"gpu_placement": placement})
    (_, score) = build_policies(policy_selection(settings)).scores[-1]
    empty = NodeFeatures(8, 8, 8, fits_idle=True, has_gpu=True, is_nominated=False)
    full = empty._replace(free=1)

    assert (score(signature(gpu=1), empty) > score(signature(gpu=1), full)) is likes_room
    assert score(signature(), full) > score(signature(), empty)


def test_which_victims_come_first() -> None:
    """As KAI has it, unless a site says otherwise."""
    settings = PolicySettings.model_validate({"victims": "least-work-lost"})

    assert build_policies(policy_selection(PolicySettings())).victim_order is None
    assert (
        build_policies(policy_selection(settings)).victim_order is VICTIM_ORDERS["least-work-lost"]
    )


def test_what_budgets_mean() -> None:
    """They are best effort in reclaim, unless a site says otherwise."""
    settings = PolicySettings.model_validate({"disruption_budgets": "always"})

    assert not build_policies(policy_selection(PolicySettings())).is_budget_strict
    assert build_policies(policy_selection(settings)).is_budget_strict


def test_which_resources_are_gpus() -> None:
    """Those of two makers, unless a site says otherwise."""
    assert gpu_resources(PolicySettings()) == ("nvidia.com/gpu", "amd.com/gpu")
    assert gpu_resources(PolicySettings(gpu_resources="gpu.intel.com/i915")) == (
        "gpu.intel.com/i915",
    )


def test_what_replicas_of_gpus_are_charged() -> None:
    """A whole GPU, unless a site says which part; other settings go to the state as they are."""
    policies = PolicySettings(gpu_replicas="nvidia.com/gpu.shared, example.com/gpu=0.25")
    settings = SchedulerSettings(policies=policies, restrict_node_scheduling=True)
    options = state_options(VirtualClock(), settings)()

    assert options.gpu_replicas == (("nvidia.com/gpu.shared", 1000), ("example.com/gpu", 250))
    assert options.restricts_nodes
    assert options.selector_steps == 200_000  # a simulation has no bound
    assert (
        state_options(VirtualClock(), SchedulerSettings())().gpu_replicas
        == StateOptions(now=0).gpu_replicas
    )


def test_what_marks_nodes_that_leave() -> None:
    """By default the notices of autoscalers, and no condition."""
    given = LeavingNodeSettings(taints="a,b=c", conditions="D, E=False", non_preemptible="keep")
    options = state_options(VirtualClock(), SchedulerSettings(leaving_nodes=given))()
    default = state_options(VirtualClock(), SchedulerSettings())()

    assert options.leaving == LeavingSigns(("a", "b=c"), ("D", "E=False"))
    assert options.keeps_non_preemptible
    assert default.leaving == LeavingSigns() == StateOptions(now=0).leaving
    assert not default.keeps_non_preemptible


@pytest.mark.parametrize("part", ["0", "2", "x", "nan", "-1", "1e-9"])
def test_no_replica_is_charged_an_odd_part(part: str) -> None:
    """The message says what would be right."""
    with pytest.raises(ValueError, match="should be the part of a GPU that one is"):
        PolicySettings(gpu_replicas=f"nvidia.com/gpu.shared={part}")


@pytest.mark.parametrize("enabled", [True, False])
def test_shares_of_gpus_can_be_switched_off(*, enabled: bool) -> None:
    """And labels of users never say which GPU a pod has."""
    settings = SchedulerSettings(gpu_sharing=GpuSharingSettings(enabled=enabled))
    options = state_options(VirtualClock(), settings)()
    assert (options.places_gpu_shares, options.trusts_gpu_labels) == (enabled, False)


class _FewKinds(FakeKube):
    """An API server that serves no kinds of the groups that are not part of every cluster."""

    async def send(self, request: Request, timeout_s: float) -> ApiResponse:
        if any(group in request.path for group in ("resource.k8s.io", "jobset", "trainer")):
            return ApiResponse(404, json.dumps({"message": "not served"}).encode())
        return await super().send(request, timeout_s)


async def test_the_process_waits_for_no_kind_that_need_not_be_served() -> None:
    """Neither devices nor workloads; and a kind that is not there is no fault."""
    clock, metrics, log = VirtualClock(), Metrics(), logger("test")
    config = RestConfig("https://h", StaticToken(""), origin="the test")
    client = Client(config, _FewKinds(), clock, NoRequestObserver())
    cache = ClusterCache(state_options(clock, SchedulerSettings()))
    cycle = Cycle(cache, build_policies(policy_selection(PolicySettings())), clock, metrics, log)
    health, informers = Health(), ClusterInformers(cache, cycle)

    async def follow(run: Runner) -> None:
        informers.start(run, client, ClientObserver(metrics), health)
        synced = asyncio.create_task(informers.synced())
        await clock.advance(1)
        assert synced.done()
        run.stop()

    await Runner(clock, log).run(follow)
    unready = {name: why for name, why in health.readiness().items() if why}
    assert {name: why for name, why in unready.items() if name.endswith("followed")} == {}
