"""What a shard, a snapshot's configuration and options choose, and what they ask for in vain."""

from typing import Any

import pytest

from scheduler.core.model.result import MinRuntime, Policies
from tests.support.case import Case, ids
from tests.support.workloads.simulate_objects import resource_reservation_pod
from trainer_kai.api.scheduler_names import ACTIONS
from trainer_kai.cli.commands.simulate.scheduler_config import SchedulerConfig, scheduler_config
from trainer_kai.cli.input.cluster import InputCluster, read_cluster
from trainer_kai.cli.input.documents import Document
from trainer_kai.errors import ConfigError


def config(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "snapshot.kai.scheduler/v1",
        "kind": "SchedulerConfig",
        "metadata": {"name": "snapshot.json"},
        "spec": spec,
    }


def inputs(*objects: dict[str, Any]) -> InputCluster:
    return read_cluster(Document("a.yaml", it) for it in objects)


def config_of(
    *objects: dict[str, Any], actions: tuple[str, ...] = ("allocate",)
) -> SchedulerConfig:
    return scheduler_config(inputs(*objects), actions)


def policies(*objects: dict[str, Any]) -> Policies:
    return config_of(*objects).policies


def test_the_defaults_are_those_of_kai() -> None:
    """All plugins, all actions."""
    chosen = config_of(actions=())

    assert chosen.policies.actions == ACTIONS
    assert chosen.scheduler_name == "kai-scheduler"
    assert chosen.policies.max_relocated == 16
    assert chosen.notes == ()


def test_a_shard_promises_minimum_run_times() -> None:
    """Its own field says it, and arguments of the plugin, which say all, replace it."""
    lasting = {"reclaimMinRuntime": "10m"}
    both = {"minruntime": {"arguments": {"defaultPreemptMinRuntime": "1m"}}}

    assert policies(resource_reservation_pod(minRuntime=lasting)).min_runtime == MinRuntime(
        reclaim_s=600
    )
    chosen = policies(resource_reservation_pod(minRuntime=lasting, plugins=both))
    assert chosen.min_runtime == MinRuntime(preempt_s=60)


def test_a_shard_overrides_them() -> None:
    """Plugins, their arguments and placement."""
    plugins = {"priority": {"enabled": False}}

    chosen = policies(
        resource_reservation_pod(plugins=plugins, placementStrategy={"gpu": "spread"})
    )

    assert len(chosen.podgroup_order) == len(policies().podgroup_order) - 1
    assert chosen.scores != policies().scores
    assert (
        policies(resource_reservation_pod(plugins={"proportion": {"enabled": False}})).quotas == ()
    )


@pytest.mark.parametrize(("arguments", "keeps"), [("best-effort", False), ("always", True)])
def test_what_budgets_mean_is_chosen(*, arguments: str, keeps: bool) -> None:
    """As the setting of the scheduler has it."""
    chosen = scheduler_config(inputs(), (), disruption_budgets=arguments)
    assert chosen.policies.is_budget_strict is keeps


def test_the_placement_is_chosen_by_a_shard_and_then_by_the_option() -> None:
    """For pods with GPUs and those without."""
    shard = resource_reservation_pod(placementStrategy={"gpu": "fragmentation", "cpu": "spread"})
    assert policies(shard).minds_fragments == (False, True)
    chosen = scheduler_config(inputs(shard), (), placement="fragmentation").policies
    assert chosen.minds_fragments == (True, True)
    chosen = scheduler_config(inputs(shard), (), placement="spread").policies
    assert (chosen.minds_fragments, chosen.spreads_shares) == ((False, False), True)


def test_of_a_snapshot_plugins_count_that_are_named() -> None:
    """A shard beside it has the last word."""
    only: dict[str, Any] = {"proportion": {}}
    snapshot = config(plugins=only, only=True, args={"scheduler-name": "other"})

    assert policies(snapshot).podgroup_order == ()
    assert len(policies(snapshot).quotas) == 3
    assert (
        len(
            policies(
                snapshot, resource_reservation_pod(plugins={"priority": {"enabled": True}})
            ).podgroup_order
        )
        == 1
    )
    assert config_of(snapshot).scheduler_name == "other"


def test_an_action_can_be_switched_off() -> None:
    """Then nothing happens."""
    off = {name: {"enabled": False} for name in ACTIONS}
    assert config_of(resource_reservation_pod(actions=off), actions=()).policies.actions == ()


def test_spreading_pods_leaves_consolidation_out() -> None:
    """As in KAI: it packs. A SchedulingShard may enable it all the same."""
    spread = resource_reservation_pod(placementStrategy={"cpu": "spread"})
    asked = resource_reservation_pod(
        placementStrategy={"cpu": "spread"}, actions={"consolidation": {"enabled": True}}
    )

    assert "consolidation" not in config_of(spread, actions=()).policies.actions
    assert "consolidation" in config_of(asked, actions=()).policies.actions


@pytest.mark.parametrize(("arguments", "most"), [("3", 3), ("-1", -1), ("", 16), ("many", 16)])
def test_how_many_consolidation_looks_at(arguments: str, most: int) -> None:
    """By the name that KAI's scheduler has for it."""
    args = {"max-consolidation-preemptees": arguments}

    assert policies(resource_reservation_pod(args=args)).max_relocated == most


@pytest.mark.parametrize(
    "arguments", [{"kValue": 2}, {"plugins": {"proportion": {"arguments": {"kValue": "2"}}}}]
)
def test_a_k_value_is_accepted_and_warned_about(arguments: dict[str, Any]) -> None:
    """In either place where a shard may have it: the queues of KAI's users stay as they are."""
    assert config_of(resource_reservation_pod(**arguments)).notes == (
        "kValue has no effect: fair share over time (past use) is not supported yet",
    )


def test_an_unknown_plugin_is_reported() -> None:
    """With those that there are."""
    (note,) = config_of(resource_reservation_pod(plugins={"priorty": {"enabled": True}})).notes

    assert note.startswith("plugin 'priorty' is unknown; known plugins:")
    assert "priority" in note


UNKNOWN_ARGUMENTS = [
    Case("no switch", {"predicates": {"enabled": False}}, "plugin 'predicates' is always enabled"),
    Case(
        "no such argument",
        {"nodeplacement": {"arguments": {"gpus": "spread"}}},
        "argument 'gpus' of plugin 'nodeplacement' is unknown; known arguments: cpu, gpu",
    ),
    Case(
        "no arguments at all",
        {"priority": {"arguments": {"a": "b"}}},
        "argument 'a' of plugin 'priority' is unknown; it has no arguments",
    ),
]


@pytest.mark.parametrize("case", UNKNOWN_ARGUMENTS, ids=ids)
def test_plugin_arguments_without_effect_are_reported(case: Case[dict[str, Any], str]) -> None:
    """What is always on cannot be switched off, and an argument must be one of its own."""
    assert config_of(resource_reservation_pod(plugins=case.given)).notes == (case.want,)
    assert config_of(config(plugins={"proportion": {}}, only=True)).notes == ()


REFUSED = [
    Case(
        "unknown", ((), ("allocat",)), "--actions: 'allocat' is unknown; valid names are allocate, "
    ),
    Case(
        "unknown to a shard",
        ((resource_reservation_pod(actions={"x": {"enabled": True}}),), ()),
        "a.yaml: SchedulingShard default: spec.actions: 'x' is unknown",
    ),
    Case(
        "two shards",
        (
            (resource_reservation_pod(), {**resource_reservation_pod(), "metadata": {"name": "b"}}),
            (),
        ),
        "a.yaml: SchedulingShard default: only one is allowed; another one is a.yaml: Sched",
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=ids)
def test_what_is_refused(
    case: Case[tuple[tuple[dict[str, Any], ...], tuple[str, ...]], str],
) -> None:
    """By name, with what would be right."""
    objects, actions = case.given

    with pytest.raises(ConfigError) as caught:
        config_of(*objects, actions=actions)

    assert case.want in str(caught.value)
