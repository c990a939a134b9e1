"""What a Deployment tells its process, as far as it can be read off it."""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Final

from trainer_kai.api.meta import Key
from trainer_kai.api.names import SCHEDULER_NAME
from trainer_kai.cli.doctor.facts import Facts, Obj, at, name_of
from trainer_kai.cli.doctor.finding import Unread
from trainer_kai.policy.rivals import Places, places_of

__all__ = ["ELSEWHERE", "containers_of", "rivals_of", "settings_of", "told_webhook"]

ELSEWHERE: Final = "?"  # the value stands in another object
_PREFIX: Final = "TRAINER_KAI_"
_WEBHOOK: Final = "trainer-kai-webhook"
_SCHEDULER: Final = "trainer-kai-scheduler"


def containers_of(deployment: Obj) -> list[Obj]:
    """Return the containers of its pods."""
    return list(at(deployment, "spec", "template", "spec", "containers") or ())


def settings_of(deployment: Obj) -> Mapping[str, str]:
    """Return settings by the names of their variables; flags outrank variables."""
    found: dict[str, str] = {}
    for container in containers_of(deployment)[:1]:
        for variable in container.get("env") or ():
            name = str(variable.get("name"))
            if name.startswith(_PREFIX):
                value = ELSEWHERE if "valueFrom" in variable else variable.get("value") or ""
                found[name.removeprefix(_PREFIX)] = value
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        for word, following in zip_longest(words, words[1:], fillvalue=""):
            name, equals, value = word.partition("=")
            if name.startswith("--"):
                setting = name.removeprefix("--").replace("-", "_").upper()
                found[setting] = value if equals else following
    return found


def told_webhook(facts: Facts, setting: str, usual: str) -> str:
    """Return what the webhook is told; ELSEWHERE where no Deployment shows it.

    A Deployment of all processes in one says of the webhook's own settings whose they are.
    """
    found = () if isinstance(facts.deployments, Unread) else facts.deployments
    for deployment in found:
        settings, own = settings_of(deployment), f"WEBHOOK_{setting}"
        is_ours = name_of(deployment) in facts.manifests.deployments
        for name in (own, setting) if is_ours else (own,):
            if name in settings:
                return settings[name]
    is_whole = any(name_of(it) == _WEBHOOK and not _is_partial(it) for it in found)
    return usual if is_whole else ELSEWHERE


def rivals_of(facts: Facts) -> Places:
    """Return where our scheduler looks for others of its name; by default where it is not shown."""
    found = () if isinstance(facts.deployments, Unread) else facts.deployments
    told = {"KAI_NAMESPACES": SCHEDULER_NAME, "KAI_SHARDS": "default"}  # as the settings have it
    for deployment in found:
        is_ours = name_of(deployment) == _SCHEDULER
        for name, value in settings_of(deployment).items():
            setting = name if is_ours else name.removeprefix("SCHEDULER_")
            if setting in told and value != ELSEWHERE:
                told[setting] = value
    site = facts.site
    own = Key(site.namespace, _SCHEDULER)
    namespaces, shards = (
        [name.strip() for name in value.split(",") if name.strip()] for value in told.values()
    )
    return places_of(site.scheduler_name, namespaces, shards, own)


def _is_partial(deployment: Obj) -> bool:
    """Say whether there are settings that stand in other objects or in a file."""
    has_more = any("envFrom" in it for it in containers_of(deployment)[:1])
    return has_more or "CONFIG" in settings_of(deployment)
