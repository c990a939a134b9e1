"""The settings of the processes that differ from their defaults, as their Deployments show them."""

from collections.abc import Iterator, Mapping
from typing import Final

from trainer_kai.cli.commands.doctor.deployment_settings import (
    UNKNOWN_VALUE,
    has_hidden_settings,
    settings_of,
)
from trainer_kai.cli.commands.doctor.facts import InstallationFacts, Obj, name_of
from trainer_kai.cli.commands.doctor.finding import CheckFinding, ok, require
from trainer_kai.service import config
from trainer_kai.service.settings import PROCESSES

_PREFIX: Final = "TRAINER_KAI_"


def check_settings(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Show for each Deployment of ours which settings its variables and flags change."""
    deployments = {name_of(it): it for it in require(facts.deployments)}
    shown = [
        f"{name.removeprefix('trainer-kai-')}: {_settings_text(name, deployments[name])}"
        for name in facts.manifests.deployments
        if name in deployments
    ]
    where = f"no Deployment in {facts.installation.namespace} shows settings"
    yield ok("settings", "; ".join(shown) or where)


def _settings_text(name: str, deployment: Obj) -> str:
    names = _setting_names(name.removeprefix("trainer-kai-"))
    changed = [
        f"{names[variable][0]}={'from another object' if value == UNKNOWN_VALUE else value}"
        for variable, value in settings_of(deployment).items()
        if variable in names and value.lower() != names[variable][1].lower()
    ]
    hidden = ["more in a file or ConfigMap"] if has_hidden_settings(deployment) else []
    return ", ".join([*changed, *hidden]) or "defaults"


def _setting_names(process: str) -> Mapping[str, tuple[str, str]]:
    """Return name and default of each setting, by its variable without the prefix."""
    model = PROCESSES.get(process)
    settings = config.settings_of(model).values() if model else ()
    return {it.variable.removeprefix(_PREFIX): (it.name, str(it.default)) for it in settings}
