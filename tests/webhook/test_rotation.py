"""The one step that is next, in every state of a certificate and its authorities."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from tests.support.case import Case, ids
from webhook.rotation import NOT_THERE, Authority, Do, Held, Lives, Published, Step, next_step

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
LIVES = Lives(365 * DAY, 3650 * DAY)
NOWHERE, FRESH, SETTLED = Published(False, False), Published(True, False), Published(True, True)


def authority(name: str, left_days: float = 3000, *, signs: bool = True) -> Authority:
    """Return an authority that has so many days left of ten years."""
    ends = NOW + left_days * DAY
    return Authority(name, ends - LIVES.authority, ends, signs)


def held(*authorities: Authority, signer: str = "old", left_days: float = 300) -> Held:
    """Return what a Secret holds whose certificate has so many days left of a year."""
    ends = NOW + left_days * DAY
    return Held(authorities, signer, ends - LIVES.certificate, ends)


OLD, NEW = authority("old"), authority("new", 3650)
ENDING = authority("old", 390)
KEYLESS = authority("old", signs=False)
ENDED = authority("old", -1)
SHORT = "it is valid until 2026-01-30 00:00"


class Given(NamedTuple):
    """What is looked at."""

    held: Held
    published: Published = SETTLED


def at_once(why: str, **step: object) -> Step:
    """Return a step that signs."""
    return Step(Do.SIGN, why, **step)  # type: ignore[arg-type]


ENDS = "its authority is valid until 2027-01-26 00:00"
SUCCEEDED = "its authority has a successor"
BOTH = ("old", "new")

CASES: list[Case[Given, Step]] = [
    # nothing to do
    Case("all is well", Given(held(OLD)), Step(Do.NOTHING)),
    Case("all is well and has just been published", Given(held(OLD), FRESH), Step(Do.NOTHING)),
    Case("it is published nowhere", Given(held(OLD), NOWHERE), Step(Do.PUBLISH)),
    # a certificate that ends
    Case(
        "30 days are left",
        Given(held(OLD, left_days=29)),
        at_once(SHORT, keep=("old",), by="old"),
    ),
    Case("a little more is left", Given(held(OLD, left_days=31)), Step(Do.NOTHING)),
    Case(
        "it ends and nobody can publish: the same authority is trusted as before",
        Given(held(OLD, left_days=29), NOWHERE),
        at_once(SHORT, keep=("old",), by="old"),
    ),
    Case(
        "it ends with its authority: another one would last no longer",
        Given(held(authority("old", 29), NEW, left_days=29), FRESH),
        Step(Do.WAIT),
    ),
    # an authority that ends, step by step
    Case("its authority will end", Given(held(ENDING)), Step(Do.ADD, ENDS, ("old",))),
    Case("that is not said before it is published", Given(held(ENDING), NOWHERE), Step(Do.PUBLISH)),
    Case("there are two", Given(held(ENDING, NEW), NOWHERE), Step(Do.PUBLISH)),
    Case("both are published", Given(held(ENDING, NEW), FRESH), Step(Do.WAIT)),
    Case("both are known", Given(held(ENDING, NEW)), at_once(SUCCEEDED, keep=BOTH, by="new")),
    Case(
        "what was begun is carried through, though there is time",
        Given(held(OLD, NEW)),
        at_once(SUCCEEDED, keep=BOTH, by="new"),
    ),
    Case(
        "the certificate ends while both become known",
        Given(held(ENDING, NEW, left_days=29), FRESH),
        at_once(SHORT, keep=BOTH, by="old"),
    ),
    Case("the new one signs", Given(held(KEYLESS, NEW, signer="new"), FRESH), Step(Do.WAIT)),
    Case(
        "the new one has signed for a while",
        Given(held(KEYLESS, NEW, signer="new")),
        Step(Do.DROP, "its new authority is trusted", ("new",)),
    ),
    Case("only that is left", Given(held(NEW, signer="new"), NOWHERE), Step(Do.PUBLISH)),
    Case("and is published", Given(held(NEW, signer="new"), FRESH), Step(Do.NOTHING)),
    Case(
        "its authority has no key",
        Given(held(KEYLESS)),
        Step(Do.ADD, "its authority has no key that could sign", ("old",)),
    ),
    Case(
        "the new one was made long ago and ends itself",
        Given(held(ENDING, authority("new", 100))),
        Step(Do.ADD, ENDS, ("old",)),
    ),
    # what cannot be shown
    Case("there is no Secret", Given(NOT_THERE, NOWHERE), Step(Do.REMAKE, "there is none")),
    Case(
        "it has ended",
        Given(held(OLD, left_days=-1), NOWHERE),
        at_once(
            "it is valid from 2024-12-31 00:00 until 2025-12-31 00:00", keep=("old",), by="old"
        ),
    ),
    Case(
        "it is of the future",
        Given(held(OLD, left_days=366)),
        at_once(
            "it is valid from 2026-01-02 00:00 until 2027-01-02 00:00", keep=("old",), by="old"
        ),
    ),
    Case(
        "its authority has ended",
        Given(held(ENDED)),
        Step(Do.REMAKE, "its authority is valid from 2016-01-03 00:00 until 2025-12-31 00:00"),
    ),
    Case(
        "its authority has ended while the new one waited",
        Given(held(ENDED, NEW), FRESH),
        at_once(
            "its authority is valid from 2016-01-03 00:00 until 2025-12-31 00:00",
            keep=("new",),
            by="new",
        ),
    ),
    Case(
        "none of them signed it",
        Given(held(OLD, NEW, signer="")),
        at_once("none of its authorities signed it", keep=BOTH, by="old"),
    ),
    Case(
        "it ended after the new one had begun to sign: the new one goes on",
        Given(held(OLD, NEW, signer="new", left_days=-1), FRESH),
        at_once("it is valid from 2024-12-31 00:00 until 2025-12-31 00:00", keep=BOTH, by="new"),
    ),
    Case(
        "its key is broken and there is none to sign with: others still show what was signed",
        Given(Held((KEYLESS,), fault="its key will not do")),
        Step(Do.REMAKE, "its key will not do", ("old",)),
    ),
    Case(
        "it lacks a name",
        Given(held(OLD)._replace(signer="", missing="a, b")),
        at_once("it does not name a, b", keep=("old",), by="old"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_what_is_next(case: Case[Given, Step]) -> None:
    """One thing, and why."""
    assert next_step(case.given.held, case.given.published, NOW, LIVES) == case.want


def test_of_many_authorities_few_are_kept() -> None:
    """However often somebody breaks it."""
    many = tuple(authority(f"a{number}", signs=False) for number in range(9))

    step = next_step(Held(many, fault="broken"), NOWHERE, NOW, LIVES)

    assert step.keep == ("a6", "a7", "a8")


@pytest.mark.parametrize(
    ("life", "left", "is_due"),
    [(3650, 396, False), (3650, 394, True), (90, 31, False), (90, 29, True)],
)
def test_when_an_authority_is_due(life: float, left: float, is_due: bool) -> None:
    """When it would not outlive a certificate that is made at the last moment, or at a third."""
    one = Authority("a", NOW + (left - life) * DAY, NOW + left * DAY, signs=True)

    assert LIVES.is_due(one, NOW) is is_due
