"""What a Deployment tells its process, as far as it can be read off it."""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Final

from trainer_kai.cli.doctor.facts import Obj, at

__all__ = ["ELSEWHERE", "containers_of", "settings_of"]

ELSEWHERE: Final = "?"  # the value stands in another object
_PREFIX: Final = "TRAINER_KAI_"


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
