"""Findings as text and as JSON."""

from tests.architecture.readme_tables import with_tables
from tests.support.expected_installation import README, example
from tests.trainer_kai.cli.commands.doctor.installation import (
    healthy_installation,
    refused_jobset,
)
from trainer_kai.cli.commands.doctor.checks.all_checks import run_checks
from trainer_kai.cli.commands.doctor.checks.dry_runs import deciding_check
from trainer_kai.cli.commands.doctor.facts import Unread, fault, ok, unknown, warning
from trainer_kai.cli.commands.doctor.text_output import as_json, as_text, exit_code, for_user

FINDINGS = [
    ok("2 of 3 have GPUs")._replace(check="nodes"),
    warning("something is otherwise than it was meant to be", "another thing")._replace(
        check="a longer name"
    ),
    unknown("nobody says")._replace(check="mode"),
]
FAULT = fault("there is none", "one")._replace(check="queues")
SHOWN = """\
ok        nodes           2 of 3 have GPUs
warning   a longer name   something is otherwise than it
                          was meant to be
                          fix: another thing
unknown   mode            nobody says

3 checks: 1 warning, 1 unknown, 1 ok"""


def test_a_line_for_each() -> None:
    """In columns, and what would be right below."""
    assert as_text(FINDINGS, 56) == SHOWN


def test_programs_get_all_of_it() -> None:
    """With counts of every state, and null where nothing has to be right."""
    document = as_json([*FINDINGS, FAULT])

    assert document["schema"] == "trainer-kai/doctor/v1"
    assert document["counts"] == {"ok": 1, "unknown": 1, "warning": 1, "fault": 1}
    assert document["findings"][0] == {
        "check": "nodes",
        "state": "ok",
        "is": "2 of 3 have GPUs",
        "right": None,
    }


def test_a_user_sees_no_check_of_administrators() -> None:
    """They are counted; whether a TrainJob is admitted concerns users."""
    untried = unknown("nobody says")._replace(check="TrainJob dry run")
    shown = for_user([*FINDINGS, untried], "TrainJob dry run")

    assert [it.check for it in shown] == [
        "nodes",
        "a longer name",
        "TrainJob dry run",
        "checks of administrators",
    ]
    assert shown[-1].observed == "1 check left out: they need the rights of an administrator"
    assert for_user(FINDINGS[:2], "TrainJob dry run") == FINDINGS[:2]


def test_a_user_without_rights_gets_what_it_may_know() -> None:
    """The TrainJob that only it may create decides; if it may create none, nothing is unknown."""
    refused = refused_jobset('x is forbidden: User "u" cannot create resource', 403)
    no_jobsets = healthy_installation()._replace(jobset=refused)
    no_runtimes = no_jobsets._replace(trainjob=Unread("you may not list clustertrainingruntimes"))
    unsaid = no_jobsets._replace(trainjob=Unread("no response within 30 s"))
    seen = []
    for facts in (healthy_installation(), no_jobsets, no_runtimes, unsaid):
        deciding = deciding_check(facts)
        shown = for_user(run_checks(facts), deciding)
        state = {it.check: it.state.value for it in shown}.get
        told = (state("TrainJob dry run"), state("invalid TrainJob dry run"))
        seen.append((*told, exit_code(shown, deciding)))

    assert seen == [("ok", "ok", 0), (None, "ok", 0), ("warning", None, 0), (None, "unknown", 2)]


def test_only_a_fault_fails() -> None:
    """A warning changes nothing; it is 2 while no TrainJob could be tried."""
    untried = unknown("nobody says")._replace(check="TrainJob dry run")

    assert exit_code(FINDINGS) == 0
    assert exit_code([*FINDINGS, FAULT]) == 1
    assert exit_code([*FINDINGS, untried]) == 2
    assert exit_code([untried, FAULT]) == 1


def test_what_the_readme_shows_is_what_is_reported() -> None:
    """`make tables` would write what is there already."""
    text = README.read_text()

    assert with_tables(text, {"doctor": example()}) == text
