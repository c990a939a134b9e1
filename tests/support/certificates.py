"""A certificate as the webhook makes one, and its authority."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from webhook.certs import Content, carry_out, host_of
from webhook.rotation import Do, Lives, Step

__all__ = ["make"]

_LIVES: Final = Lives(certificate=timedelta(days=365), authority=timedelta(days=3650))


def make(hosts: Iterable[str], now: datetime) -> Content:
    """Return what the Secret holds after it was made at a time."""
    return carry_out(Step(Do.REMAKE), None, [host_of(it) for it in hosts], _LIVES, now)
