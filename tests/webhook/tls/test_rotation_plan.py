"""The one step that is next, in every state of a certificate and its authorities."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from tests.support.case import Case, ids
from webhook.tls.rotation_plan import (
    NO_SECRET,
    Authority,
    CertificateLifetimes,
    PublicationState,
    RotationAction,
    RotationStep,
    SecretState,
    next_step,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
LIVES = CertificateLifetimes(365 * DAY, 3650 * DAY)
NOWHERE, FRESH, SETTLED = (
    PublicationState(False, False),
    PublicationState(True, False),
    PublicationState(True, True),
)


def authority(name: str, left_days: float = 3000, *, signs: bool = True) -> Authority:
    """Return an authority that has so many days left of ten years."""
    ends = NOW + left_days * DAY
    return Authority(name, ends - LIVES.authority, ends, signs)


def secret_state(
    *authorities: Authority, signer: str = "old", left_days: float = 300
) -> SecretState:
    """Return the state of a Secret; its certificate has so many days left of a year."""
    ends = NOW + left_days * DAY
    return SecretState(authorities, signer, ends - LIVES.certificate, ends)


OLD, NEW = authority("old"), authority("new", 3650)
ENDING = authority("old", 390)
KEYLESS = authority("old", signs=False)
ENDED = authority("old", -1)
SHORT = "the certificate expires at 2026-01-30 00:00"


class RotationCase(NamedTuple):
    state: SecretState
    published: PublicationState = SETTLED


def at_once(why: str, **step: object) -> RotationStep:
    return RotationStep(RotationAction.SIGN, why, **step)  # type: ignore[arg-type]


ENDS = "the authority expires at 2027-01-26 00:00"
SUCCEEDED = "a newer authority is published"
BOTH = ("old", "new")

CASES: list[Case[RotationCase, RotationStep]] = [
    # nothing to do
    Case("all is well", RotationCase(secret_state(OLD)), RotationStep(RotationAction.NOTHING)),
    Case(
        "all is well and has just been published",
        RotationCase(secret_state(OLD), FRESH),
        RotationStep(RotationAction.NOTHING),
    ),
    Case(
        "it is published nowhere",
        RotationCase(secret_state(OLD), NOWHERE),
        RotationStep(RotationAction.PUBLISH),
    ),
    # a certificate that ends
    Case(
        "30 days are left",
        RotationCase(secret_state(OLD, left_days=29)),
        at_once(SHORT, kept_authorities=("old",), signer="old"),
    ),
    Case(
        "a little more is left",
        RotationCase(secret_state(OLD, left_days=31)),
        RotationStep(RotationAction.NOTHING),
    ),
    Case(
        "it ends and nothing can be published: the same authority is trusted as before",
        RotationCase(secret_state(OLD, left_days=29), NOWHERE),
        at_once(SHORT, kept_authorities=("old",), signer="old"),
    ),
    Case(
        "it ends with its authority: another one would last no longer",
        RotationCase(secret_state(authority("old", 29), NEW, left_days=29), FRESH),
        RotationStep(RotationAction.WAIT),
    ),
    # an authority that ends, step by step
    Case(
        "its authority will end",
        RotationCase(secret_state(ENDING)),
        RotationStep(RotationAction.ADD, ENDS, ("old",)),
    ),
    Case(
        "that is not said before it is published",
        RotationCase(secret_state(ENDING), NOWHERE),
        RotationStep(RotationAction.PUBLISH),
    ),
    Case(
        "there are two",
        RotationCase(secret_state(ENDING, NEW), NOWHERE),
        RotationStep(RotationAction.PUBLISH),
    ),
    Case(
        "both are published",
        RotationCase(secret_state(ENDING, NEW), FRESH),
        RotationStep(RotationAction.WAIT),
    ),
    Case(
        "both are known",
        RotationCase(secret_state(ENDING, NEW)),
        at_once(SUCCEEDED, kept_authorities=BOTH, signer="new"),
    ),
    Case(
        "what was begun is carried through, though there is time",
        RotationCase(secret_state(OLD, NEW)),
        at_once(SUCCEEDED, kept_authorities=BOTH, signer="new"),
    ),
    Case(
        "the certificate ends while both become known",
        RotationCase(secret_state(ENDING, NEW, left_days=29), FRESH),
        at_once(SHORT, kept_authorities=BOTH, signer="old"),
    ),
    Case(
        "the new one signs",
        RotationCase(secret_state(KEYLESS, NEW, signer="new"), FRESH),
        RotationStep(RotationAction.WAIT),
    ),
    Case(
        "the new one has signed for a while",
        RotationCase(secret_state(KEYLESS, NEW, signer="new")),
        RotationStep(RotationAction.DROP, "the new authority is published", ("new",)),
    ),
    Case(
        "only that is left",
        RotationCase(secret_state(NEW, signer="new"), NOWHERE),
        RotationStep(RotationAction.PUBLISH),
    ),
    Case(
        "and is published",
        RotationCase(secret_state(NEW, signer="new"), FRESH),
        RotationStep(RotationAction.NOTHING),
    ),
    Case(
        "its authority has no key",
        RotationCase(secret_state(KEYLESS)),
        RotationStep(
            RotationAction.ADD, "the Secret has no usable key for the authority", ("old",)
        ),
    ),
    Case(
        "the new one was made long ago and ends itself",
        RotationCase(secret_state(ENDING, authority("new", 100))),
        RotationStep(RotationAction.ADD, ENDS, ("old",)),
    ),
    # what cannot be shown
    Case(
        "there is no Secret",
        RotationCase(NO_SECRET, NOWHERE),
        RotationStep(RotationAction.REMAKE, "the Secret has no certificate"),
    ),
    Case(
        "it has ended",
        RotationCase(secret_state(OLD, left_days=-1), NOWHERE),
        at_once(
            "the certificate is valid from 2024-12-31 00:00 until 2025-12-31 00:00",
            kept_authorities=("old",),
            signer="old",
        ),
    ),
    Case(
        "it is of the future",
        RotationCase(secret_state(OLD, left_days=366)),
        at_once(
            "the certificate is valid from 2026-01-02 00:00 until 2027-01-02 00:00",
            kept_authorities=("old",),
            signer="old",
        ),
    ),
    Case(
        "its authority has ended",
        RotationCase(secret_state(ENDED)),
        RotationStep(
            RotationAction.REMAKE,
            "the authority is valid from 2016-01-03 00:00 until 2025-12-31 00:00",
        ),
    ),
    Case(
        "its authority has ended while the new one waited",
        RotationCase(secret_state(ENDED, NEW), FRESH),
        at_once(
            "the authority is valid from 2016-01-03 00:00 until 2025-12-31 00:00",
            kept_authorities=("new",),
            signer="new",
        ),
    ),
    Case(
        "none of them signed it",
        RotationCase(secret_state(OLD, NEW, signer="")),
        at_once(
            "no authority in the Secret signed the certificate", kept_authorities=BOTH, signer="old"
        ),
    ),
    Case(
        "it ended after the new one had begun to sign: the new one goes on",
        RotationCase(secret_state(OLD, NEW, signer="new", left_days=-1), FRESH),
        at_once(
            "the certificate is valid from 2024-12-31 00:00 until 2025-12-31 00:00",
            kept_authorities=BOTH,
            signer="new",
        ),
    ),
    Case(
        "its key is broken and there is none to sign with: others still show what was signed",
        RotationCase(SecretState((KEYLESS,), fault="the key (tls.key) cannot be used")),
        RotationStep(RotationAction.REMAKE, "the key (tls.key) cannot be used", ("old",)),
    ),
    Case(
        "it lacks a name",
        RotationCase(secret_state(OLD)._replace(signer="", missing="a, b")),
        at_once("the certificate does not name a, b", kept_authorities=("old",), signer="old"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_what_is_next(case: Case[RotationCase, RotationStep]) -> None:
    """One thing, and why."""
    assert next_step(case.given.state, case.given.published, NOW, LIVES) == case.want


def test_of_many_authorities_few_are_kept() -> None:
    """However often it is broken."""
    many = tuple(authority(f"a{number}", signs=False) for number in range(9))

    step = next_step(SecretState(many, fault="broken"), NOWHERE, NOW, LIVES)

    assert step.kept_authorities == ("a6", "a7", "a8")


@pytest.mark.parametrize(
    ("life", "left", "is_due"),
    [(3650, 396, False), (3650, 394, True), (90, 31, False), (90, 29, True)],
)
def test_when_an_authority_is_due(life: float, left: float, is_due: bool) -> None:
    """When it would not outlive a certificate that is made at the last moment, or at a third."""
    one = Authority("a", NOW + (left - life) * DAY, NOW + left * DAY, can_sign=True)

    assert LIVES.is_due(one, NOW) is is_due
