"""From the settings of a site to its policies."""

from typing import Final

from scheduler.policies.registry import ACTIONS, Choice, PluginChoice, choice_faults
from trainer_kai.api.syntax import label_name_fault
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.settings import Policies

__all__ = ["choice_of", "gpu_resources_of"]

# Not `stalegangeviction`: a plan goes by what is written on a group, and the warden knows more. It
# counts how long we have seen for ourselves that pods which exist find no room, and so who is
# repaired is not evicted.
_LIVE: Final = ("allocate", "consolidation", "reclaim", "preempt")


def gpu_resources_of(settings: Policies) -> tuple[str, ...]:
    """Return which resources are whole GPUs; raise `ConfigError` for what no resource is called."""
    names = tuple(_listed(settings.gpu_resources))
    faults = [
        FieldError("policies.gpu_resources", f"{name!r}: {fault}")
        for name in names
        if (fault := label_name_fault(name))
    ]
    if faults:
        raise ConfigError(faults)
    return names


def choice_of(settings: Policies) -> Choice:
    """Return what a site has chosen; raise `ConfigError` for names that nothing has."""
    disabled = _listed(settings.disabled)
    plugins = {name: PluginChoice(enabled=False) for name in disabled}
    past_use = plugins.get("proportion", PluginChoice())
    plugins["proportion"] = past_use._replace(arguments={"kValue": str(settings.past_use_weight)})
    actions = _listed(settings.actions)
    choice = Choice(
        plugins,
        settings.gpu_placement,
        settings.cpu_placement,
        {name: name in actions for name in ACTIONS},
        victims=settings.victims,
    )
    faults = [FieldError("policies.disabled", fault) for fault in choice_faults(choice)]
    faults += [
        FieldError("policies.actions", f"{name!r} is none; there are {', '.join(_LIVE)}")
        for name in actions
        if name not in _LIVE
    ]
    if faults:
        raise ConfigError(faults)
    return choice


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
