"""Who set a label: read off the fields that managers own."""

import msgspec
import pytest

from tests.support.case import Case, ids
from tests.webhook.objects import job, jobset, managed, recorded
from webhook.owned import Owned

QUEUE = "kai.scheduler/queue"
LABELLED = managed(jobset(job("node", labels={QUEUE: "a"}), job("launcher"), labels={QUEUE: "a"}))
PLAIN = managed(jobset(job("node"), job("launcher")))

# managedFields -> (the JobSet's label, that of node, that of launcher) are somebody's
CASES = [
    Case("what was applied is somebody's", LABELLED["metadata"], (True, True, False)),
    Case("what nobody applied came with admission", PLAIN["metadata"], (False, False, False)),
    Case("where nothing is noted all is somebody's", {}, (True, True, True)),
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
def test_whose_label_it_is(case: Case[dict[str, object], tuple[bool, bool, bool]]) -> None:
    """The JobSet's and each template's are told apart."""
    owned = Owned(case.given)

    assert (
        owned.label(QUEUE),
        owned.template_label("node", QUEUE),
        owned.template_label("launcher", QUEUE),
    ) == case.want


def test_annotations_have_owners_too() -> None:
    """They stand beside the labels."""
    owned = Owned(managed(jobset(annotations={"mine": "x"}))["metadata"])

    assert owned.annotation("mine")
    assert not owned.annotation("yours")
    assert not owned.label("mine")


def test_on_the_real_chain_what_we_wrote_belongs_to_nobody() -> None:
    """Trainer applied the JobSet; our labels are on it, and are not Trainer's."""
    asked = msgspec.json.decode(recorded("jobset-update"))["request"]["object"]
    owned = Owned(asked["metadata"])

    assert asked["metadata"]["labels"][QUEUE] == "team-b"
    assert owned.is_noted
    assert not owned.label(QUEUE)
    assert not owned.template_label("node", QUEUE)
