"""`trainer-kai migrate`: what it prints of files, and that it writes nothing."""

import json
from pathlib import Path

import pytest
import yaml

from tests.support.terminal import Terminal
from tests.trainer_kai.cli.commands.migrate.migrated import EXAMPLES

KUEUE = str(EXAMPLES / "kueue.yaml")


@pytest.fixture
def terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal("migrate", tmp_path, capsys)


def test_the_text_has_three_sections(terminal: Terminal) -> None:
    """Each line names the object, and the field if there is one."""
    code, out, err = terminal.run("kueue", "-f", KUEUE)
    lines = out.splitlines()

    assert (code, err) == (0, "")
    assert lines[0] == "A move from Kueue to trainer-kai. Nothing is written."
    assert [it for it in lines if it and not it.startswith(" ")][1:] == [
        "Becomes",
        "Change by hand",
        "Not supported",
    ]
    assert "  LocalQueue vision/default → RoleBinding vision/trainer-kai-use-team-a:" in out


def test_dry_run_changes_nothing(terminal: Terminal) -> None:
    """The command never writes; the flag says so."""
    plain = terminal.run("volcano", "-f", str(EXAMPLES / "volcano.yaml"))

    assert terminal.run("volcano", "-f", str(EXAMPLES / "volcano.yaml"), "--dry-run") == plain
    assert "Change by hand\n  nothing\n" in plain[1]


def test_yaml_has_the_objects_in_the_order_in_which_they_are_needed(terminal: Terminal) -> None:
    """What is not in it is counted on standard error."""
    code, out, err = terminal.run("kueue", "-f", KUEUE, "-o", "yaml")
    kinds = [it["kind"] for it in yaml.safe_load_all(out)]

    assert code == 0
    assert kinds == [
        *("PriorityClass", "Queue", "Queue", "Queue", "Namespace"),
        *("Role", "RoleBinding", "TrainJob"),
    ]
    assert err == (
        "trainer-kai: 3 changes by hand and 4 fields without an equivalent are not in the YAML: "
        "see -o text\n"
    )


def test_json_has_all_of_it(terminal: Terminal) -> None:
    """The document names its version."""
    code, out, _ = terminal.run("kai", "-f", str(EXAMPLES / "kai.yaml"), "-o", "json")
    document = json.loads(out)

    assert code == 0
    assert document.keys() == {
        *("schema", "system", "becomes", "changeByHand", "notSupported", "objects"),
    }
    assert document["schema"] == "trainer-kai/migrate/v1"
    assert document["becomes"][0] == {
        "source": {"kind": "Queue", "namespace": None, "name": "team-a"},
        "target": {"kind": "Queue", "namespace": None, "name": "team-a"},
        "change": "stays; GPU quota 8, limit 16; CPU unlimited; memory unlimited",
        "more": 0,
    }
    assert document["notSupported"][0] == {
        "object": {"kind": "Config", "namespace": None, "name": "kai-config"},
        "field": "spec.admission.queueLabelSelector",
        "message": "admission is not limited to labelled namespaces",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "-f: no object found in"),
        ("a: [", "is not valid YAML"),
        ("kind: Pod\nmetadata: {name: x}\n", "no object of kueue found in"),
        ("apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\n", "metadata"),
    ],
)
def test_files_that_are_no_use_are_named(terminal: Terminal, text: str, message: str) -> None:
    """With exit code 2 and one line."""
    code, out, err = terminal.run("kueue", "-f", terminal.write("in.yaml", text))

    assert (code, out) == (2, "")
    assert message in err
    assert "in.yaml" in err


def test_control_characters_are_escaped(terminal: Terminal) -> None:
    """A name cannot move the cursor."""
    text = json.dumps(
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": "a\u001b[2J"},
        }
    )
    code, out, _ = terminal.run("volcano", "-f", terminal.write("in.json", text))

    assert code == 0
    assert "\u001b" not in out
