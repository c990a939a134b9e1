"""From the settings of a site to its policies."""

from scheduler.policies.registry import Choice, PluginChoice, choice_faults
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.settings import Policies

__all__ = ["choice_of"]


def choice_of(settings: Policies) -> Choice:
    """Return what a site has chosen; raise `ConfigError` for names that nothing has."""
    disabled = [name.strip() for name in settings.disabled.split(",") if name.strip()]
    plugins = {name: PluginChoice(enabled=False) for name in disabled}
    past_use = plugins.get("proportion", PluginChoice())
    plugins["proportion"] = past_use._replace(arguments={"kValue": str(settings.past_use_weight)})
    choice = Choice(plugins, settings.gpu_placement, settings.cpu_placement)
    faults = [FieldError("policies.disabled", fault) for fault in choice_faults(choice)]
    if faults:
        raise ConfigError(faults)
    return choice
