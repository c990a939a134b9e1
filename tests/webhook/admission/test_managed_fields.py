"""Which labels a field manager set."""

import msgspec
import pytest

from tests.support.case import Case, ids
from tests.webhook.objects import job, jobset, managed, recorded
from webhook.admission.patch import FieldManagers

QUEUE = "kai.scheduler/queue"
LABELLED = managed(jobset(job("node", labels={QUEUE: "a"}), job("launcher"), labels={QUEUE: "a"}))
PLAIN = managed(jobset(job("node"), job("launcher")))

# managedFields -> whether a manager set (the JobSet's label, that of node, that of launcher)
CASES = [
    Case("what was applied has a manager", LABELLED["metadata"], (True, True, False)),
    Case("what was not applied came with admission", PLAIN["metadata"], (False, False, False)),
    Case("where nothing is recorded all has a manager", {}, (True, True, True)),
    Case("an empty note is none", {"managedFields": []}, (True, True, True)),
    Case("null is none", {"managedFields": None}, (True, True, True)),
    Case(
        "of several managers one is enough",
        {
            "managedFields": [
                {"manager": "status", "fieldsV1": {"f:status": {}}},
                *LABELLED["metadata"]["managedFields"],
            ]
        },
        (True, True, False),
    ),
    Case(
        "a map that is owned says nothing of its members",
        {"managedFields": [{"fieldsV1": {"f:metadata": {"f:labels": {}}}}]},
        (False, False, False),
    ),
    Case(
        "what cannot be read is left out",
        {"managedFields": [{"fieldsV1": "x"}, 7, *PLAIN["metadata"]["managedFields"]]},
        (False, False, False),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_which_labels_are_set_by_a_manager(
    case: Case[dict[str, object], tuple[bool, bool, bool]],
) -> None:
    """The JobSet's and each template's are told apart."""
    managed_fields = FieldManagers(case.given)

    assert (
        managed_fields.sets_label(QUEUE),
        managed_fields.sets_template_label("node", QUEUE),
        managed_fields.sets_template_label("launcher", QUEUE),
    ) == case.want


def test_annotations_have_owners_too() -> None:
    """They stand beside the labels."""
    managed_fields = FieldManagers(managed(jobset(annotations={"mine": "x"}))["metadata"])

    assert managed_fields.sets_annotation("mine")
    assert not managed_fields.sets_annotation("yours")
    assert not managed_fields.sets_label("mine")


def test_on_the_real_chain_what_we_wrote_has_no_manager() -> None:
    """Trainer applied the JobSet; our labels are on it, and are not Trainer's."""
    requested = msgspec.json.decode(recorded("jobset-update"))["request"]["object"]
    managed_fields = FieldManagers(requested["metadata"])

    assert requested["metadata"]["labels"][QUEUE] == "team-b"
    assert managed_fields.is_recorded
    assert not managed_fields.sets_label(QUEUE)
    assert not managed_fields.sets_template_label("node", QUEUE)
