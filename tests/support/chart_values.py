"""The values of the Helm chart: their schema, with the settings of the processes, and their list.

`values.schema.json` is written by hand, except the settings in it, which are those of the code.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import yaml

from tests.support.repository import ROOT
from trainer_kai.service.config import settings_of
from trainer_kai.service.settings import PROCESSES

Obj = dict[str, Any]

CHART: Final = ROOT / "manifests" / "chart"
HEADING: Final = "{{{{- /* Written by `make tables` from manifests/{}: change that file. */}}}}\n"
_OF_KAI: Final = ("global.", "operator.", "defaultPriorityClasses.")
_NO_EFFECT: Final = "No effect"
_NUMBER: Final = r"^[0-9]+(\.[0-9]+)?$"
# Settings that other values of the chart set, and settings that must differ between processes.
_OWN_SETTINGS: Final = frozenset(
    {
        *("kubeconfig", "context", "mode", "scheduler_name", "queue_access.unannotated"),
        "gpu_sharing.enabled",
        *("health.address", "health.port", "health.snapshot", "server.address", "server.port"),
        *("leader.name", "leader.namespace", "tls.source", "tls.namespace", "tls.secret_name"),
        *("tls.service_name", "tls.configuration_name", "tls.certificate_file", "tls.key_file"),
        "tls.client_ca_file",
    }
)


class ChartValue(NamedTuple):
    """A value of the chart, its default, and what it means."""

    name: str
    default: Any
    meaning: str

    @property
    def is_ignored(self) -> bool:
        """Say whether the chart accepts the value and does nothing with it."""
        return self.meaning.startswith((f"{_NO_EFFECT}.", f"{_NO_EFFECT}:"))

    @property
    def is_of_kai(self) -> bool:
        """Say whether it is a value of KAI's chart, by a name of KAI's."""
        return self.is_ignored or self.name.startswith(_OF_KAI) or "KAI's name" in self.meaning


def lists_file() -> str:
    """Return which settings each process has, for another one ends it, and what is ignored."""
    lists = {f"settings.{process}": list(settings_of(it)) for process, it in PROCESSES.items()}
    lists["noEffect"] = [it.name for it in chart_values() if it.is_ignored]
    return HEADING.format("chart/values.schema.json and the settings of each process") + "".join(
        f'{{{{- define "trainer-kai.{name}" -}}}}\n' + "\n".join(lines) + "\n{{- end }}\n"
        for name, lines in lists.items()
    )


def chart_values() -> list[ChartValue]:
    """Return each value that the schema describes; a value of parts by its parts."""
    return list(_values(_schema(), yaml.safe_load((CHART / "values.yaml").read_text()), ""))


def _values(schema: Obj, defaults: Obj, prefix: str) -> Iterator[ChartValue]:
    for key, value in schema["properties"].items():
        name, default = f"{prefix}{key}", defaults.get(key)
        if value.get("properties") and name != "settings":
            yield from _values(value, default or {}, f"{name}.")
        else:
            yield ChartValue(name, default, value["description"])


def _schema() -> Obj:
    schema: Obj = json.loads((CHART / "values.schema.json").read_text())
    return schema


def settings_schema() -> Obj:
    """Return the schema of `settings`: every setting that no other value of the chart means."""
    every = {name: it for model in PROCESSES.values() for name, it in settings_of(model).items()}
    top: Obj = {}
    for name, setting in every.items():
        if name in _OWN_SETTINGS:
            continue
        section, _, inner = name.rpartition(".")
        schema = setting.adapter.json_schema()
        typed = {
            key: value for key, value in schema.items() if key not in ("default", "description")
        }
        if typed.get("type") == "number":  # `helm --set` has no fractions: they come as text
            typed |= {"type": ["number", "string"], "pattern": _NUMBER}
        into = top.setdefault(section, _closed({}))["properties"] if section else top
        into[inner] = {"description": setting.doc, **typed}
    return top


def _closed(properties: Obj) -> Obj:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def schema_file() -> str:
    """Return the schema of the values, with the settings as the processes have them."""
    schema = _schema()
    schema["properties"]["settings"]["properties"] = settings_schema()
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
