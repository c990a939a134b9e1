"""The next step of a self-managed certificate and the rotation of its authority.

The step follows from the Secret and the published authorities, and from nothing else. So all
replicas may compute it at any time, and another replica continues after a replica was killed. The
rotation of an authority, as the Secret shows it:

    authorities    keys        next step
    old            old         the old one expires soon: ADD a new one, which signs nothing yet
    old, new       old, new    PUBLISH both; when that has settled, SIGN with the new one
    old, new       new         when all replicas show the new certificate, DROP the old authority
    new            new         PUBLISH the new authority alone

A certificate that cannot be used is replaced at once. Every replica completes a rotation that has
begun, whatever its settings for lifetimes are.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple

NEVER: Final = datetime.min.replace(tzinfo=UTC)
_RENEW_BEFORE: Final = timedelta(days=30)  # at most this long before a certificate expires
_MAX_AUTHORITIES: Final = 4  # authorities at the same time


class CertificateLifetimes(NamedTuple):
    certificate: timedelta
    authority: timedelta

    def is_due(self, authority: "Authority", now: datetime) -> bool:
        """Say whether an authority needs a successor: it must outlive the certificates it signs."""
        longest = self.certificate + _RENEW_BEFORE
        return now >= authority.ends - min((authority.ends - authority.begins) / 3, longest)


class Authority(NamedTuple):
    id: str
    begins: datetime
    ends: datetime
    can_sign: bool  # the Secret has a usable key for it

    def is_valid_at(self, now: datetime) -> bool:
        return self.begins <= now < self.ends


class SecretState(NamedTuple):
    authorities: tuple[Authority, ...] = ()
    signer: str = ""  # the authority that signed the certificate; "" if none of them did
    begins: datetime = NEVER
    ends: datetime = NEVER
    fault: str = ""  # why the certificate cannot be used at any time
    missing: str = ""  # hosts that the certificate lacks

    def authority_by_id(self, name: str) -> Authority | None:
        return next((it for it in self.authorities if it.id == name), None)

    def unusable_reason(self, now: datetime) -> str:
        """Say why the certificate cannot be used now; "" if it can."""
        if self.fault:
            return self.fault
        if self.missing:
            return f"the certificate does not name {self.missing}"
        signer = self.authority_by_id(self.signer)
        if signer is None:
            return "no authority in the Secret signed the certificate"
        if not self.begins <= now < self.ends:
            return f"the certificate is valid from {_date(self.begins)} until {_date(self.ends)}"
        if not signer.is_valid_at(now):
            return f"the authority is valid from {_date(signer.begins)} until {_date(signer.ends)}"
        return ""


NO_SECRET: Final = SecretState(fault="the Secret has no certificate")


class PublicationState(NamedTuple):
    everywhere: bool  # every webhook configuration has exactly these authorities
    settled: bool  # everywhere, with this certificate, for the overlap time


class RotationAction(Enum):
    NOTHING = "nothing"
    WAIT = "wait"  # until the published authorities have settled
    REMAKE = "remake"  # a new authority, and a certificate signed by it
    SIGN = "sign"  # a new certificate, signed by the authority of the step
    ADD = "add"  # a new authority, which signs nothing yet
    DROP = "drop"  # authorities that are no longer needed
    PUBLISH = "publish"  # the authorities of the Secret in every webhook configuration


class RotationStep(NamedTuple):
    action: RotationAction
    reason: str = ""
    kept_authorities: tuple[str, ...] = ()  # the authorities that stay in the Secret
    signer: str = ""  # the authority that signs


def next_step(
    state: SecretState, published: PublicationState, now: datetime, lifetimes: CertificateLifetimes
) -> RotationStep:
    unusable = state.unusable_reason(now)
    if unusable:
        return _immediate_step(state, unusable, now)
    signer = state.authority_by_id(state.signer)
    assert signer is not None
    all_ids = _ids(state.authorities)
    successor = _successor(state, now, lifetimes)
    if successor and published.everywhere and published.settled:
        why = "a newer authority is published"
        return RotationStep(RotationAction.SIGN, why, all_ids, successor.id)
    if _is_ending(state, now) and signer.can_sign and signer.ends > state.ends:
        why = f"the certificate expires at {_date(state.ends)}"
        return RotationStep(RotationAction.SIGN, why, all_ids, signer.id)
    if not published.everywhere:
        return RotationStep(RotationAction.PUBLISH)
    if successor:
        return RotationStep(RotationAction.WAIT)
    if lifetimes.is_due(signer, now) or not signer.can_sign:
        ends = f"the authority expires at {_date(signer.ends)}"
        why = ends if signer.can_sign else "the Secret has no usable key for the authority"
        return RotationStep(RotationAction.ADD, why, (signer.id,))
    if len(state.authorities) == 1:
        return RotationStep(RotationAction.NOTHING)
    if published.settled:
        return RotationStep(RotationAction.DROP, "the new authority is published", (signer.id,))
    return RotationStep(RotationAction.WAIT)


def _immediate_step(state: SecretState, why: str, now: datetime) -> RotationStep:
    """Create a usable certificate, signed by a trusted authority if there is one."""
    valid = [it for it in state.authorities if it.is_valid_at(now)]
    signing = sorted((it for it in valid if it.can_sign), key=lambda it: it.id != state.signer)
    if signing:
        return RotationStep(RotationAction.SIGN, why, _ids(valid), signing[0].id)
    # other replicas may still show certificates signed by these authorities
    return RotationStep(RotationAction.REMAKE, why, _ids(valid[-_MAX_AUTHORITIES + 1 :]))


def _successor(
    state: SecretState, now: datetime, lifetimes: CertificateLifetimes
) -> Authority | None:
    """Return the authority that signs next, unless it needs a successor itself."""
    others = (it for it in state.authorities if it.can_sign and it.id != state.signer)
    fit = (it for it in others if it.is_valid_at(now) and not lifetimes.is_due(it, now))
    return next(fit, None)


def _is_ending(state: SecretState, now: datetime) -> bool:
    return now >= state.ends - min((state.ends - state.begins) / 3, _RENEW_BEFORE)


def _ids(authorities: Iterable[Authority]) -> tuple[str, ...]:
    return tuple(it.id for it in authorities)


def _date(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"
