"""The settings that a Deployment gives to its process, as far as its fields show them."""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Final

from trainer_kai.api.meta import Key
from trainer_kai.api.names import SCHEDULER_NAME
from trainer_kai.cli.commands.doctor.facts import InstallationFacts, Obj, name_of, nested_field
from trainer_kai.cli.commands.doctor.finding import Unread
from trainer_kai.policy.duplicate_scheduler import (
    DuplicateSchedulerObjects,
    duplicate_scheduler_objects,
)

UNKNOWN_VALUE: Final = "?"  # the value is in another object
_PREFIX: Final = "TRAINER_KAI_"
_WEBHOOK: Final = "trainer-kai-webhook"
_SCHEDULER: Final = "trainer-kai-scheduler"


def containers_of(deployment: Obj) -> list[Obj]:
    """Return the containers of its pods."""
    return list(nested_field(deployment, "spec", "template", "spec", "containers") or ())


def settings_of(deployment: Obj) -> Mapping[str, str]:
    """Return the settings by the names of their variables; flags override variables."""
    settings: dict[str, str] = {}
    for container in containers_of(deployment)[:1]:
        for variable in container.get("env") or ():
            name = str(variable.get("name"))
            if name.startswith(_PREFIX):
                value = UNKNOWN_VALUE if "valueFrom" in variable else variable.get("value") or ""
                settings[name.removeprefix(_PREFIX)] = value
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        for word, following in zip_longest(words, words[1:], fillvalue=""):
            name, equals, value = word.partition("=")
            if name.startswith("--"):
                setting = name.removeprefix("--").replace("-", "_").upper()
                settings[setting] = value if equals else following
    return settings


def webhook_setting(facts: InstallationFacts, setting: str, default: str) -> str:
    """Return a setting of the webhook; `UNKNOWN_VALUE` if no Deployment shows it."""
    return _setting(facts, _WEBHOOK, setting, default)


def scheduler_setting(facts: InstallationFacts, setting: str, default: str) -> str:
    """Return a setting of the scheduler; `UNKNOWN_VALUE` if no Deployment shows it."""
    return _setting(facts, _SCHEDULER, setting, default)


def _setting(facts: InstallationFacts, process: str, setting: str, default: str) -> str:
    """Return a setting of a process.

    In a Deployment of all processes its own settings have a prefix: WEBHOOK_ or SCHEDULER_.
    """
    deployments = () if isinstance(facts.deployments, Unread) else facts.deployments
    prefix = process.removeprefix("trainer-kai-").upper()
    for deployment in deployments:
        settings, own_name = settings_of(deployment), f"{prefix}_{setting}"
        is_ours = name_of(deployment) in facts.manifests.deployments
        for name in (own_name, setting) if is_ours else (own_name,):
            if name in settings:
                return settings[name]
    is_visible = any(name_of(it) == process and not has_hidden_settings(it) for it in deployments)
    return default if is_visible else UNKNOWN_VALUE


def other_scheduler_objects(facts: InstallationFacts) -> DuplicateSchedulerObjects:
    """Return the Leases and Deployments that show other schedulers with our scheduler name."""
    installation = facts.installation
    own_name = Key(installation.namespace, _SCHEDULER)
    namespaces, shards = _kai_settings(facts)
    return duplicate_scheduler_objects(installation.scheduler_name, namespaces, shards, own_name)


def kai_namespaces(facts: InstallationFacts) -> list[str]:
    """Return the namespaces in which another KAI scheduler can run, as our scheduler has them."""
    return _kai_settings(facts)[0]


def _kai_settings(facts: InstallationFacts) -> tuple[list[str], list[str]]:
    """Return the namespaces of another KAI scheduler, and the names of its shards."""
    deployments = () if isinstance(facts.deployments, Unread) else facts.deployments
    values = {
        "KAI_NAMESPACES": SCHEDULER_NAME,
        "KAI_SHARDS": "default",
    }  # the defaults of the settings
    for deployment in deployments:
        is_ours = name_of(deployment) == _SCHEDULER
        for name, value in settings_of(deployment).items():
            setting = name if is_ours else name.removeprefix("SCHEDULER_")
            if setting in values and value != UNKNOWN_VALUE:
                values[setting] = value
    namespaces, shards = (
        [name.strip() for name in value.split(",") if name.strip()] for value in values.values()
    )
    return namespaces, shards


def has_hidden_settings(deployment: Obj) -> bool:
    """Say whether settings are in other objects or in a file."""
    has_more = any("envFrom" in it for it in containers_of(deployment)[:1])
    return has_more or "CONFIG" in settings_of(deployment)
