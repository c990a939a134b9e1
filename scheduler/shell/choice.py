"""From the settings of a site to its policies.

Names that nothing has are refused where settings are read, with all else that is wrong in them.
"""

from scheduler.policies.registry import ACTIONS, Choice, PluginChoice
from trainer_kai.settings import Policies, listed

__all__ = ["choice_of", "gpu_resources_of"]


def gpu_resources_of(settings: Policies) -> tuple[str, ...]:
    """Return which resources are whole GPUs."""
    return tuple(listed(settings.gpu_resources))


def choice_of(settings: Policies) -> Choice:
    """Return what a site has chosen."""
    plugins = {name: PluginChoice(enabled=False) for name in listed(settings.disabled)}
    actions = listed(settings.actions)
    return Choice(
        plugins,
        settings.gpu_placement,
        settings.cpu_placement,
        {name: name in actions for name in ACTIONS},
        victims=settings.victims,
        disruption_budgets=settings.disruption_budgets,
    )
