"""Leases: whether their holders still renew them."""

from datetime import datetime
from typing import Final

from trainer_kai.api.lease import Lease
from trainer_kai.cli.commands.doctor.facts import InstallationFacts
from trainer_kai.policy.duplicate_scheduler import DEFAULT_LEASE_S, lease_duration_s

CLOCK_S: Final = 5.0  # clocks that differ by more are reported


def may_be_expired(lease: Lease, now: datetime, *, is_other_scheduler: bool = False) -> bool:
    """Say whether a Lease looks expired, and has to be read again to see whether it is renewed.

    The Lease of another scheduler counts as long as our scheduler accepts it.
    """
    renewed = parse_time(lease.spec.renew_time)
    if not lease.spec.holder_identity or renewed is None:
        return False
    age_s = (now - renewed).total_seconds()
    claimed_s = lease.spec.lease_duration_seconds
    return (
        not -CLOCK_S
        <= age_s
        <= (lease_duration_s(claimed_s) if is_other_scheduler else claimed_s or DEFAULT_LEASE_S)
    )


def is_alive(lease: Lease, facts: InstallationFacts, *, is_other_scheduler: bool = False) -> bool:
    """Say whether a Lease is held and renewed: by its date, or because it changed since."""
    if not lease.spec.holder_identity:
        return False
    if lease.metadata.uid in facts.renewed:
        return True
    is_dated = bool(lease.spec.renew_time)
    return is_dated and not may_be_expired(
        lease, facts.server_now, is_other_scheduler=is_other_scheduler
    )


def parse_time(text: str) -> datetime | None:
    """Return a time of the API server; None if it is none."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else None
