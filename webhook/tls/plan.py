"""The next step of a self-managed certificate and the rotation of its authority.

Nothing is remembered between two answers: they follow from what the Secret holds and what is
published. So every replica may ask, any number of times and at once, and a replica that is killed
is continued by the next one. A rotation of the authority goes through the Secret:

    authorities    keys        what is next
    old            old         the old one will end: ADD a new one, which signs nothing yet
    old, new       old, new    PUBLISH both; when that has settled, SIGN by the new one
    old, new       new         when all replicas show that, DROP the old one
    new            new         PUBLISH the new one alone

A certificate that cannot be shown at all is signed anew at once. A rotation that was begun is
carried through by every replica, whatever its settings say about the time.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple

__all__ = [
    "NEVER",
    "NO_SECRET",
    "Authority",
    "CertificateLifetimes",
    "PublicationState",
    "RotationAction",
    "RotationStep",
    "SecretState",
    "next_step",
]

NEVER: Final = datetime.min.replace(tzinfo=UTC)
_RENEW_BEFORE: Final = timedelta(days=30)  # before the end of a certificate, at most
_MAX_AUTHORITIES: Final = 4  # authorities that are kept side by side


class CertificateLifetimes(NamedTuple):
    """How long certificates and authorities are valid."""

    certificate: timedelta
    authority: timedelta

    def is_due(self, authority: "Authority", now: datetime) -> bool:
        """Say whether an authority should have a successor: it must outlive what it signs."""
        longest = self.certificate + _RENEW_BEFORE
        return now >= authority.ends - min((authority.ends - authority.begins) / 3, longest)


class Authority(NamedTuple):
    """One of the authorities of a Secret."""

    id: str
    begins: datetime
    ends: datetime
    can_sign: bool  # the Secret has a key for it that is good enough

    def is_valid_at(self, now: datetime) -> bool:
        """Say whether it is valid."""
        return self.begins <= now < self.ends


class SecretState(NamedTuple):
    """What a Secret holds."""

    authorities: tuple[Authority, ...] = ()
    signer: str = ""  # the authority whose certificate it is; empty for none of them
    begins: datetime = NEVER
    ends: datetime = NEVER
    fault: str = ""  # why the certificate cannot be shown at any time
    missing: str = ""  # hosts that it should name and does not

    def authority_by_id(self, name: str) -> Authority | None:
        """Return the authority of this id."""
        return next((it for it in self.authorities if it.id == name), None)

    def unusable_reason(self, now: datetime) -> str:
        """Say why the certificate cannot be shown now, or nothing."""
        if self.fault:
            return self.fault
        if self.missing:
            return f"it does not name {self.missing}"
        signer = self.authority_by_id(self.signer)
        if signer is None:
            return "none of its authorities signed it"
        if not self.begins <= now < self.ends:
            return f"it is valid from {_date(self.begins)} until {_date(self.ends)}"
        if not signer.is_valid_at(now):
            return f"its authority is valid from {_date(signer.begins)} until {_date(signer.ends)}"
        return ""


NO_SECRET: Final = SecretState(fault="there is none")


class PublicationState(NamedTuple):
    """How far the authorities of the Secret have come."""

    everywhere: bool  # every webhook configuration has exactly them
    settled: bool  # and has had them, beside this certificate, for the overlap


class RotationAction(Enum):
    """The actions of a step."""

    NOTHING = "nothing"
    WAIT = "wait"  # for what is published to settle
    REMAKE = "remake"  # a new authority, and a certificate by it at once
    SIGN = "sign"  # a new certificate, by the authority that the step names
    ADD = "add"  # a new authority, which signs nothing yet
    DROP = "drop"  # the authorities that are not needed any more
    PUBLISH = "publish"  # the authorities of the Secret in every webhook configuration


class RotationStep(NamedTuple):
    """The next action, its reason, and the authorities that it is about."""

    action: RotationAction
    reason: str = ""
    kept_authorities: tuple[str, ...] = ()  # the authorities that stay in the Secret
    signer: str = ""  # the authority that signs


def next_step(
    state: SecretState, published: PublicationState, now: datetime, lifetimes: CertificateLifetimes
) -> RotationStep:
    """Return the one thing that is to be done next."""
    unusable = state.unusable_reason(now)
    if unusable:
        return _immediate_step(state, unusable, now)
    signer = state.authority_by_id(state.signer)
    assert signer is not None
    all_ids = _ids(state.authorities)
    successor = _successor(state, now, lifetimes)
    if successor and published.everywhere and published.settled:
        return RotationStep(
            RotationAction.SIGN, "its authority has a successor", all_ids, successor.id
        )
    if _is_ending(state, now) and signer.can_sign and signer.ends > state.ends:
        return RotationStep(
            RotationAction.SIGN, f"it is valid until {_date(state.ends)}", all_ids, signer.id
        )
    if not published.everywhere:
        return RotationStep(RotationAction.PUBLISH)
    if successor:
        return RotationStep(RotationAction.WAIT)
    if lifetimes.is_due(signer, now) or not signer.can_sign:
        ends = f"its authority is valid until {_date(signer.ends)}"
        why = ends if signer.can_sign else "its authority has no key that could sign"
        return RotationStep(RotationAction.ADD, why, (signer.id,))
    if len(state.authorities) == 1:
        return RotationStep(RotationAction.NOTHING)
    if published.settled:
        return RotationStep(RotationAction.DROP, "its new authority is trusted", (signer.id,))
    return RotationStep(RotationAction.WAIT)


def _immediate_step(state: SecretState, why: str, now: datetime) -> RotationStep:
    """Make a certificate that can be shown, by an authority that is trusted if there is one."""
    valid_authorities = [it for it in state.authorities if it.is_valid_at(now)]
    signing = sorted(
        (it for it in valid_authorities if it.can_sign), key=lambda it: it.id != state.signer
    )
    if signing:
        return RotationStep(RotationAction.SIGN, why, _ids(valid_authorities), signing[0].id)
    return RotationStep(
        RotationAction.REMAKE, why, _ids(valid_authorities[-_MAX_AUTHORITIES + 1 :])
    )  # other replicas may still show what those signed


def _successor(
    state: SecretState, now: datetime, lifetimes: CertificateLifetimes
) -> Authority | None:
    """Return the authority that is to sign next, unless it waited so long that it ends itself."""
    others = (it for it in state.authorities if it.can_sign and it.id != state.signer)
    return next(
        (it for it in others if it.is_valid_at(now) and not lifetimes.is_due(it, now)), None
    )


def _is_ending(state: SecretState, now: datetime) -> bool:
    return now >= state.ends - min((state.ends - state.begins) / 3, _RENEW_BEFORE)


def _ids(authorities: Iterable[Authority]) -> tuple[str, ...]:
    return tuple(it.id for it in authorities)


def _date(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"
