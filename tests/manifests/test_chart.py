"""The Helm charts, without Helm: generated parts are current, and nothing depends on a cluster."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.support.chart_templates import CRD_CHART, RENDERED, generated_files
from tests.support.chart_values import CHART, chart_values
from tests.support.documents import documents
from tests.support.repository import ROOT
from trainer_kai.service.config import settings_of
from trainer_kai.service.settings import PROCESSES
from trainer_kai.version import __version__

BASE: Final = ROOT / "manifests" / "base"
TEMPLATES: Final = sorted(
    path for chart in (CHART, CRD_CHART) for path in (chart / "templates").rglob("*.*")
)
SCHEMA: Final[dict[str, Any]] = json.loads((CHART / "values.schema.json").read_text())
VALUES: Final[dict[str, Any]] = yaml.safe_load((CHART / "values.yaml").read_text())


def chart_of(folder: Path) -> dict[str, Any]:
    """Return the description of a chart."""
    [found] = documents(folder / "Chart.yaml")
    return dict(found)


def test_both_charts_have_the_version_of_the_product() -> None:
    """One release has all; the tag of the image is the version, too."""
    ours, crds = chart_of(CHART), chart_of(CRD_CHART)

    assert {key for key in ours if ours[key] != crds[key]} == {"name", "description"}
    assert ours["version"] == ours["appVersion"] == __version__


@pytest.mark.parametrize(
    ("path", "text"),
    [pytest.param(path, text, id=path.name) for path, text in generated_files().items()],
)
def test_what_is_generated_is_current(path: Path, text: str) -> None:
    """`make tables` would write what is there already."""
    assert path.read_text() == text


def test_nothing_generated_is_left_over() -> None:
    """Helm would render a template of a manifest that is gone."""
    folders = [CHART / "templates" / "generated", CHART / "crds", CRD_CHART / "templates"]

    assert {path for folder in folders for path in folder.iterdir()} <= set(generated_files())


def test_every_manifest_is_in_the_chart() -> None:
    """A file that is added to the base is rendered, or rendered by hand for a reason."""
    files = {
        path.relative_to(ROOT / "manifests").as_posix()
        for path in BASE.rglob("*.yaml")
        if path.name != "kustomization.yaml" and path.parent.name != "crds"
    }

    assert files - set(RENDERED) == {
        "base/namespace.yaml",  # Helm creates it, or the administrator does
        "base/queues/queues.yaml",  # templates/queues.yaml: on installation only
    }


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_hook_and_no_lookup(path: Path) -> None:
    """What `helm template` writes is what is installed, at any time, with any tool."""
    forbidden = r"helm\.sh/hook|\blookup\b|rand[A-Z]|gen[A-Z]|\{\{[^}]*\bnow\b|uuidv4"

    assert re.findall(forbidden, path.read_text()) == []


def test_every_value_is_typed_and_described() -> None:
    """A value without a type, and a default that no user can see, are mistakes."""
    described = chart_values()

    assert len(described) > 60
    assert set(VALUES) <= set(SCHEMA["properties"])
    assert [it.name for it in described if not it.meaning.endswith(".")] == []


def test_the_settings_of_the_chart_are_those_of_the_processes() -> None:
    """Each has the type that the process reads; the chart itself sets the others."""
    every = {name for model in PROCESSES.values() for name in settings_of(model)}
    listed = set()
    for name, value in SCHEMA["properties"]["settings"]["properties"].items():
        inner = value.get("properties")
        listed |= {f"{name}.{it}" for it in inner} if inner else {name}

    assert listed < every
    assert {"log.level", "policies.actions", "default_queue", "kueue"} <= listed
    assert not {"mode", "leader.name", "tls.source"} & listed


def test_the_processes_may_use_what_the_manifests_say() -> None:
    """Resources stand in the values, where a user changes them."""
    for process in PROCESSES:
        [deployment, *_] = documents(BASE / "processes" / f"{process}.yaml")
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        assert VALUES[process]["resources"] == container["resources"]


def test_the_default_queues_are_those_of_the_manifests() -> None:
    """Helm and kustomize install the same ones."""
    parent, child = documents(BASE / "queues" / "queues.yaml")
    wanted = VALUES["defaultQueue"]

    assert (parent["metadata"]["name"], child["metadata"]["name"]) == (
        wanted["parentName"],
        wanted["childName"],
    )
    assert parent["spec"]["resources"] == wanted["parentResources"]
    assert child["spec"]["resources"] == wanted["childResources"]
