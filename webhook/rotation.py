"""What is to be done next about a certificate that we keep ourselves.

Nothing is remembered between two answers: they follow from what the Secret holds and what is
published. So every replica may ask, any number of times and at once, and whoever is killed is
continued by the next one. A rotation of the authority goes through the Secret:

    authorities    keys        what is next
    old            old         the old one will end: ADD a new one, which signs nothing yet
    old, new       old, new    PUBLISH both; when that has settled, SIGN by the new one
    old, new       new         when all replicas show that, DROP the old one
    new            new         PUBLISH the new one alone

What cannot be shown at all is signed anew at once, for then there is nothing to lose. A rotation
that was begun is carried through by everybody, whatever his settings say about its time.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple

__all__ = [
    "NEVER",
    "NOT_THERE",
    "Authority",
    "Do",
    "Held",
    "Lives",
    "Published",
    "Step",
    "next_step",
]

NEVER: Final = datetime.min.replace(tzinfo=UTC)
_DAYS: Final = timedelta(days=30)  # so long before its end a certificate is made anew, at most
_MOST: Final = 4  # authorities that are kept side by side


class Lives(NamedTuple):
    """How long what we make lasts."""

    certificate: timedelta
    authority: timedelta

    def is_due(self, authority: "Authority", now: datetime) -> bool:
        """Say whether an authority should have a successor: it must outlive what it signs."""
        longest = self.certificate + _DAYS
        return now >= authority.ends - min((authority.ends - authority.begins) / 3, longest)


class Authority(NamedTuple):
    """One of the authorities of a Secret."""

    id: str
    begins: datetime
    ends: datetime
    signs: bool  # the Secret has a key for it that is good enough

    def lasts(self, now: datetime) -> bool:
        """Say whether it is valid."""
        return self.begins <= now < self.ends


class Held(NamedTuple):
    """What a Secret holds."""

    authorities: tuple[Authority, ...] = ()
    signer: str = ""  # the authority whose certificate it is; empty for none of them
    begins: datetime = NEVER
    ends: datetime = NEVER
    fault: str = ""  # why the certificate cannot be shown at any time
    missing: str = ""  # the hosts that it should name and does not

    def of(self, name: str) -> Authority | None:
        """Return the authority of this id."""
        return next((it for it in self.authorities if it.id == name), None)

    def unusable(self, now: datetime) -> str:
        """Say why the certificate cannot be shown now, or nothing."""
        if self.fault:
            return self.fault
        if self.missing:
            return f"it does not name {self.missing}"
        signer = self.of(self.signer)
        if signer is None:
            return "none of its authorities signed it"
        if not self.begins <= now < self.ends:
            return f"it is valid from {_date(self.begins)} until {_date(self.ends)}"
        if not signer.lasts(now):
            return f"its authority is valid from {_date(signer.begins)} until {_date(signer.ends)}"
        return ""


NOT_THERE: Final = Held(fault="there is none")


class Published(NamedTuple):
    """How far the authorities of the Secret have come."""

    everywhere: bool  # every webhook configuration has exactly them
    settled: bool  # and has had them, beside this certificate, for as long as others need


class Do(Enum):
    """What can be done, one at a time."""

    NOTHING = "nothing"
    WAIT = "wait"  # for what is published to settle
    REMAKE = "remake"  # a new authority, and a certificate by it at once
    SIGN = "sign"  # a new certificate, by the authority that the step names
    ADD = "add"  # a new authority, which signs nothing yet
    DROP = "drop"  # the authorities that are not needed any more
    PUBLISH = "publish"  # the authorities of the Secret in every webhook configuration


class Step(NamedTuple):
    """What is next."""

    do: Do
    why: str = ""
    keep: tuple[str, ...] = ()  # the authorities that stay in the Secret
    by: str = ""  # who signs


def next_step(held: Held, published: Published, now: datetime, lives: Lives) -> Step:
    """Return the one thing that is to be done next."""
    unusable = held.unusable(now)
    if unusable:
        return _at_once(held, unusable, now)
    signer = held.of(held.signer)
    assert signer is not None
    everybody = _ids(held.authorities)
    successor = _successor(held, now, lives)
    if successor and published.everywhere and published.settled:
        return Step(Do.SIGN, "its authority has a successor", everybody, successor.id)
    if _is_ending(held, now) and signer.signs and signer.ends > held.ends:
        return Step(Do.SIGN, f"it is valid until {_date(held.ends)}", everybody, signer.id)
    if not published.everywhere:
        return Step(Do.PUBLISH)
    if successor:
        return Step(Do.WAIT)
    if lives.is_due(signer, now) or not signer.signs:
        ends = f"its authority is valid until {_date(signer.ends)}"
        why = ends if signer.signs else "its authority has no key that could sign"
        return Step(Do.ADD, why, (signer.id,))
    if len(held.authorities) == 1:
        return Step(Do.NOTHING)
    if published.settled:
        return Step(Do.DROP, "its new authority is trusted", (signer.id,))
    return Step(Do.WAIT)


def _at_once(held: Held, why: str, now: datetime) -> Step:
    """Have a certificate that can be shown, by an authority that is trusted if there is one."""
    able = [it for it in held.authorities if it.lasts(now)]
    signing = sorted((it for it in able if it.signs), key=lambda it: it.id != held.signer)
    if signing:
        return Step(Do.SIGN, why, _ids(able), signing[0].id)
    return Step(Do.REMAKE, why, _ids(able[-_MOST + 1 :]))  # others may still show what those signed


def _successor(held: Held, now: datetime, lives: Lives) -> Authority | None:
    """Return the authority that is to sign next, unless it waited so long that it ends itself."""
    others = (it for it in held.authorities if it.signs and it.id != held.signer)
    return next((it for it in others if it.lasts(now) and not lives.is_due(it, now)), None)


def _is_ending(held: Held, now: datetime) -> bool:
    return now >= held.ends - min((held.ends - held.begins) / 3, _DAYS)


def _ids(authorities: Iterable[Authority]) -> tuple[str, ...]:
    return tuple(it.id for it in authorities)


def _date(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"
