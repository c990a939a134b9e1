"""What the README of the manifests shows: it is what it says, and it says no less than there is."""

import re
from typing import Any, Final

import pytest
import yaml

from tests.manifests.test_manifests import MANIFESTS, objects
from tests.manifests.test_processes import container_of
from trainer_kai.api import names
from trainer_kai.settings import PROCESSES

README: Final = (MANIFESTS / "README.md").read_text()
BLOCKS: Final = re.findall(r"^```yaml\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def table(heading: str) -> dict[str, list[str]]:
    """Return the rows of the first table below a heading, by their first cell."""
    section = README.partition(f"\n{heading}\n")[2]
    rows = re.findall(r"^\| (.*) \|$", section.partition("\n## ")[0], re.MULTILINE)
    cells = [row.split(" | ") for row in rows]
    return {first.strip("`"): rest for first, *rest in cells[1:]}


def test_every_overlay_has_a_row() -> None:
    """And no row is of one that is gone."""
    overlays = {path.name for path in (MANIFESTS / "overlays").iterdir()}

    assert table("## Overlays").keys() & overlays == overlays


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_asks_for_what_is_said(process: str) -> None:
    """CPU and memory, and no more memory than so much."""
    asks, most = table("## Installing")[process][1:3]
    resources = container_of(process)["resources"]
    cpu = {"100m": "0.1", "1": "1"}[resources["requests"]["cpu"]]

    assert asks == f"{cpu} CPU, {_spelt(resources['requests']['memory'])}"
    assert most == _spelt(resources["limits"]["memory"])


def test_the_example_of_a_permission_is_the_one_that_is_asked_for() -> None:
    """The verb `use` on a queue, for the group of everybody in the namespace."""
    [block] = [text for text in BLOCKS if "kind: RoleBinding" in text]
    role, binding = yaml.safe_load_all(block)
    [rule] = role["rules"]
    groups = {subject["name"] for subject in binding["subjects"]}

    assert (rule["apiGroups"], rule["resources"], rule["verbs"]) == (
        [names.RUN_AI],
        ["queues"],
        ["use"],
    )
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert f"system:serviceaccounts:{binding['metadata']['namespace']}" in groups


def test_a_setting_is_added_where_it_takes_none_away() -> None:
    """Behind the variables that an overlay has put there."""
    patches: list[dict[str, Any]] = [
        operation
        for block in BLOCKS
        if "TRAINER_KAI_" in block
        for patch in yaml.safe_load(block)["patches"]
        for operation in yaml.safe_load(patch["patch"])
    ]

    assert [it["path"] for it in patches] == ["/spec/template/spec/containers/0/env/-"]


def test_the_way_back_from_cert_manager_names_all_that_is_its() -> None:
    """Every object of the component, and both Secrets that are made of those."""
    section = README.partition("### Back to certificates")[2].partition("\n### ")[0]
    deleted = [
        (kind.partition(".")[0], names.split())
        for kind, names in re.findall(
            r"^kubectl -n trainer-kai delete (\S+) (.*)$", section, re.MULTILINE
        )
    ]
    found = objects("Certificate", "Issuer")
    made = [(f"{it['kind'].lower()}s", it["metadata"]["name"]) for it in found]
    secrets = [("secret", it["spec"]["secretName"]) for it in objects("Certificate")]

    assert sorted((kind, name) for kind, names in deleted for name in names) == sorted(
        [*made, *secrets]
    )


def test_what_is_uninstalled_first_is_whatever_asks_or_rules() -> None:
    """By the names and kinds that are there."""
    section = README.partition("## Uninstalling")[2].partition("\n## ")[0]
    policies = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
    ruling = objects("MutatingWebhookConfiguration", *policies)

    assert {obj["metadata"]["name"] for obj in ruling} == {"kai-trainer"}
    for obj in ruling:
        assert obj["kind"].lower() in section


def _spelt(memory: str) -> str:
    return re.sub(r"^(\d+)(\w)i$", r"\1 \2iB", memory)
