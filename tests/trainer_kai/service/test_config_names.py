"""Names in the values of settings, and sections: reported with what would be right."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.case import Case, ids
from trainer_kai.api.scheduler_names import ACTIONS
from trainer_kai.errors import ConfigError
from trainer_kai.service.config import load
from trainer_kai.service.settings import PROCESSES, AllSettings, Settings

MODELS: Mapping[str, type[Settings]] = {**PROCESSES, "all": AllSettings}
WITHOUT = "should include 'allocate'; without it no pod starts"
TOGETHER = (
    "leader: lease_s should be more than renew_deadline_s plus write_s (flag --leader-write-s)"
)
THERE_ARE = "valid names are allocate, consolidation, reclaim, preempt, stalegangeviction"

# process, flags -> the faults
NAMES: list[Case[tuple[str, ...], list[str]]] = [
    Case("actions that there are", ("scheduler", "--policies-actions", "allocate, reclaim"), []),
    Case(
        "one that nearly is, and one that is not",
        ("scheduler", "--policies-actions=allocate,reclame,x"),
        [
            (
                f"flag --policies-actions: 'reclame' is unknown; did you mean reclaim? {THERE_ARE};"
                f" 'x' is unknown; {THERE_ARE}"
            )
        ],
    ),
    Case(
        "none that starts anything",
        ("scheduler", "--policies-actions=stalegangeviction"),
        [
            (
                "flag --policies-actions: 'stalegangeviction' should include 'allocate';"
                " without it no pod starts"
            )
        ],
    ),
    Case(
        "policies that can be left out",
        ("scheduler", "--policies-disabled=elastic, proportion,topology"),
        [],
    ),
    Case(
        "one that is always on",
        ("scheduler", "--policies-disabled=predicates"),
        ["flag --policies-disabled: 'predicates' is always on"],
    ),
    Case(
        "resources that nothing is called",
        ("scheduler", "--policies-gpu-resources=no name!"),
        [
            (
                "flag --policies-gpu-resources: 'no name!': the name must be 1 to 63 letters,"
                " digits, '-', '_' and '.', and begin and end with a letter or digit"
            )
        ],
    ),
    Case(
        "classes of kinds",
        ("webhook", "--kind-defaults=Deployment.apps=train, Notebook=build/preemptible"),
        [],
    ),
    Case(
        "a kind without a class",
        ("podgrouper", "--kind-defaults=Deployment,notebook=build,Job=train/never"),
        [
            "flag --kind-defaults: "
            + "; ".join(
                f"{it!r} should be a kind and a PriorityClass, such as Deployment.apps=train, or "
                "also preemptible or non-preemptible, such as Job.batch=train/preemptible"
                for it in ("Deployment", "notebook=build", "Job=train/never")
            )
        ],
    ),
    Case(
        "signs of nodes that leave",
        (
            "scheduler",
            "--leaving-nodes-taints=x/gone, ToBeDeleted=now",
            "--leaving-nodes-conditions=GpuUnhealthy, Hardware=False",
        ),
        [],
    ),
    Case("none", ("scheduler", "--leaving-nodes-taints=", "--leaving-nodes-conditions="), []),
    Case(
        "taints and conditions that there cannot be",
        (
            "scheduler",
            "--leaving-nodes-taints=a b,k=v:NoExecute",
            "--leaving-nodes-conditions=Hardware=no",
        ),
        [
            (
                "flag --leaving-nodes-taints: 'a b': the name must be 1 to 63 letters, digits, '-',"
                " '_' and '.', and begin and end with a letter or digit; 'k=v:NoExecute' should be"
                " the key of a taint, or KEY=VALUE"
            ),
            (
                "flag --leaving-nodes-conditions: 'Hardware=no' should be the type of a condition,"
                " or TYPE=False or TYPE=Unknown"
            ),
        ],
    ),
    Case(
        "a condition that all nodes have",
        ("scheduler", "--leaving-nodes-conditions=Ready=False,Ready"),
        [
            (
                "flag --leaving-nodes-conditions: 'Ready' is a condition of each node that works: "
                "write Ready=False or Ready=Unknown"
            )
        ],
    ),
    Case(
        "nodes that are avoided for longer than there are dates",
        ("scheduler", "--avoided-nodes-first-s=999999999999", "--avoided-nodes-most-s=0"),
        [
            "flag --avoided-nodes-first-s: '999999999999' should be less than or equal to 31536000",
            "flag --avoided-nodes-most-s: '0' should be greater than or equal to 1",
        ],
    ),
    Case("no namespace of a KAI", ("scheduler", "--kai-namespaces="), []),
    Case(
        "without the one by which anything starts",
        ("scheduler", "--policies-actions=reclaim"),
        [f"flag --policies-actions: 'reclaim' {WITHOUT}"],
    ),
    Case(
        "none at all",
        ("scheduler", "--policies-actions="),
        [f"flag --policies-actions: '' {WITHOUT}"],
    ),
    Case(
        "what is not right together, beside what is wrong alone",
        ("scheduler", "--leader-write-s=5", "--mode=extern"),
        ["flag --mode: 'extern' should be 'bundled' or 'external'", TOGETHER],
    ),
    Case(
        "not beside what stands in place of a mistake",
        ("scheduler", "--leader-write-s=5", "--leader-lease-s=0"),
        ["flag --leader-lease-s: '0' should be greater than or equal to 1"],
    ),
    Case(
        "no time after which room is kept",
        ("scheduler", "--kept-room-after-s=0"),
        ["flag --kept-room-after-s: '0' should be greater than or equal to 1"],
    ),
    Case(
        "with all else that is wrong, also behind the name of a process",
        ("all", "--mode=x", "--scheduler-policies-actions=allocat"),
        [
            "flag --mode: 'x' should be 'bundled' or 'external'",
            (
                "flag --scheduler-policies-actions: 'allocat' is unknown; did you mean allocate?"
                f" {THERE_ARE}"
            ),
        ],
    ),
]


def faults_of(process: str, *argv: str) -> list[str]:
    try:
        load(MODELS[process], argv, {})
    except ConfigError as error:
        return [*map(str, error.faults)]
    return []


@pytest.mark.parametrize("case", NAMES, ids=ids)
def test_names_are_looked_at_with_all_else(case: Case[tuple[str, ...], list[str]]) -> None:
    assert faults_of(*case.given) == case.want


def test_an_unknown_policy_is_reported_with_the_known_ones() -> None:
    """By name, in their order."""
    (fault,) = faults_of("scheduler", "--policies-disabled=elastik")

    begin = "flag --policies-disabled: 'elastik' is unknown; did you mean elastic? valid names are "
    assert fault.startswith(f"{begin}dynamicresources, elastic, ")
    assert not {*ACTIONS} & {*fault.split(", ")}


# process, text of a file -> the faults
SECTIONS: list[Case[tuple[str, str], list[str]]] = [
    Case(
        "each setting of a section that is misspelt",
        ("webhook", "admision: {lint: deny, cluster: grows}"),
        [
            "admision.lint: is not a setting; did you mean admission.lint?",
            "admision.cluster: is not a setting; did you mean admission.cluster?",
        ],
    ),
    Case(
        "or that stands outside of its process",
        ("all", "admision: {lint: deny}"),
        ["admision.lint: is not a setting; did you mean webhook.admission.lint?"],
    ),
    Case(
        "one that is misspelt and empty",
        ("webhook", "admision: {}"),
        ["admision: is not a setting; did you mean admission.lint?"],
    ),
    Case(
        "one that resembles none",
        ("webhook", "other: {lint: deny}"),
        ["other: is not a setting; --help lists all settings"],
    ),
]


@pytest.mark.parametrize("case", SECTIONS, ids=ids)
def test_sections(case: Case[tuple[str, str], list[str]], tmp_path: Path) -> None:
    """A section is not known as such where it is misspelt, and what stands in it is."""
    process, text = case.given
    file = tmp_path / "settings.yaml"
    file.write_text(text)

    faults = faults_of(process, f"--config={file}")
    assert [it.removeprefix(f"{file}:1 ") for it in faults] == case.want
