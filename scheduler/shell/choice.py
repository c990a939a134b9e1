"""From the settings of a site to its policies.

Names that nothing has are refused where settings are read, with all else that is wrong in them.
"""

from scheduler.policies.registry import ACTIONS, PluginSelection, PolicySelection
from trainer_kai.settings import PolicySettings, split_names

__all__ = ["gpu_resources", "policy_selection"]


def gpu_resources(settings: PolicySettings) -> tuple[str, ...]:
    """Return which resources are whole GPUs."""
    return tuple(split_names(settings.gpu_resources))


def policy_selection(settings: PolicySettings) -> PolicySelection:
    """Return what a site has chosen."""
    plugins = {name: PluginSelection(enabled=False) for name in split_names(settings.disabled)}
    actions = split_names(settings.actions)
    return PolicySelection(
        plugins,
        settings.gpu_placement,
        settings.cpu_placement,
        {name: name in actions for name in ACTIONS},
        victim_order=settings.victims,
        disruption_budgets=settings.disruption_budgets,
    )
