"""What refused, by the message of the API server. The messages are those of a real one."""

import pytest

from tests.support.case import Case, ids
from trainer_kai.cli.commands.doctor.checks.dry_runs import DryRunRefusal, RefusedBy, parse_refusal
from trainer_kai.kube.rest.response import ErrorDetails

HOOK = "jobset-create.trainer-kai.dev"
POST = 'failed to call webhook: Post "https://127.0.0.1:9443/mutate/jobset?timeout=5s"'
UNKNOWN = "tls: failed to verify certificate: x509: certificate signed by unknown authority"
ROLES = (
    'jobsets.jobset.x-k8s.io is forbidden: User "u" cannot create resource "jobsets" '
    'in API group "jobset.x-k8s.io" in the namespace "default"'
)

FORBIDDEN = 'jobsets.jobset.x-k8s.io "trainer-kai-doctor" is forbidden:'
CEL = "expression 'x' resulted in error: no such key: x"

# status, message -> what refused, by which webhook, and its message
REFUSED: list[Case[tuple[int, str], DryRunRefusal]] = [
    Case(
        "our own refusal",
        (503, f'admission webhook "{HOOK}" denied the request: the TrainJob a/b cannot be read'),
        DryRunRefusal(RefusedBy.OURS, HOOK, "the TrainJob a/b cannot be read"),
    ),
    Case(
        "without a word",
        (400, f'admission webhook "{HOOK}" denied the request without explanation'),
        DryRunRefusal(RefusedBy.OURS, HOOK, "without a reason"),
    ),
    Case(
        "no dry runs",
        (400, f'admission webhook "{HOOK}" does not support dry run'),
        DryRunRefusal(RefusedBy.OURS, HOOK, "does not support dry run"),
    ),
    Case(
        "nobody answers",
        (500, f'Internal error occurred: failed calling webhook "{HOOK}": {POST}: refused'),
        DryRunRefusal(RefusedBy.OUR_OUTAGE, HOOK, f"{POST}: refused"),
    ),
    Case(
        "another one refuses",
        (403, 'admission webhook "validation.gatekeeper.sh" denied the request: [x] no'),
        DryRunRefusal(RefusedBy.OTHER, "validation.gatekeeper.sh", "[x] no"),
    ),
    Case(
        "another one is away",
        (500, 'Internal error occurred: failed calling webhook "mjobset.kb.io": timeout'),
        DryRunRefusal(RefusedBy.OTHER_OUTAGE, "mjobset.kb.io", "timeout"),
    ),
    Case(
        "our own policy",
        (403, f"{FORBIDDEN} policy 'kai-trainer' with binding 'kai-trainer' denied request: {CEL}"),
        DryRunRefusal(RefusedBy.OUR_POLICY, "kai-trainer", CEL),
    ),
    Case(
        "a policy of others",
        (403, f"{FORBIDDEN} policy 'theirs' with binding 'all' denied request: {CEL}"),
        DryRunRefusal(
            RefusedBy.SERVER,
            "",
            f"{FORBIDDEN} policy 'theirs' with binding 'all' denied request: {CEL}",
        ),
    ),
    Case(
        "one that validates, and is called as ours is",
        (403, f"{FORBIDDEN} ValidatingAdmissionPolicy 'kai-trainer' denied request: {CEL}"),
        DryRunRefusal(
            RefusedBy.SERVER,
            "",
            f"{FORBIDDEN} ValidatingAdmissionPolicy 'kai-trainer' denied request: {CEL}",
        ),
    ),
    Case("no right to", (403, ROLES), DryRunRefusal(RefusedBy.ROLES, "", ROLES)),
    Case(
        "a quota",
        (403, 'pods "x" is forbidden: exceeded quota: q, requested: pods=1'),
        DryRunRefusal(
            RefusedBy.SERVER, "", 'pods "x" is forbidden: exceeded quota: q, requested: pods=1'
        ),
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=ids)
def test_who_refused(case: Case[tuple[int, str], DryRunRefusal]) -> None:
    """Ours are known by their names."""
    status, message = case.given

    refusal = ErrorDetails("POST /x", status, "", message)

    found = parse_refusal(refusal, frozenset({HOOK}), frozenset({"kai-trainer"}))

    assert found == case.want


def test_what_is_not_trusted() -> None:
    """A wrong authority is not taken for a process that does not run."""
    text = f'failed calling webhook "{HOOK}": {POST}: {UNKNOWN}'
    away = f'failed calling webhook "{HOOK}": {POST}: connect: connection refused'
    ours = frozenset({HOOK})

    assert parse_refusal(ErrorDetails("", 500, "", text), ours).trust_error == UNKNOWN
    assert parse_refusal(ErrorDetails("", 500, "", away), ours).trust_error == ""
    assert parse_refusal(ErrorDetails("", 500, "", text), frozenset()).trust_error == ""
