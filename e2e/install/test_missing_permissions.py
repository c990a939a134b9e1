"""A missing permission is noticed: some are revoked, drawn by lot, and each has an effect."""

import asyncio
import random
from collections.abc import Iterable, Iterator
from typing import Final

import pytest

from e2e.install.feature_checks import remove_checks, run_checks
from e2e.install.rbac_permissions import NEVER_ASKED, RbacPermission
from e2e.install.service_accounts import ServiceAccounts
from e2e.size import SEED, size

_SAMPLE: Final = size(2, 10)
_WAIT_S: Final = 5.0  # most of what is waited for never comes
_ONLY_AT_START: Final = (
    "secrets",
    "deployments",
    "leases",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
)

_READ_ONCE: Final = ("pods", "get")  # when it is needed first, and kept


@pytest.mark.sized
async def test_a_right_that_is_taken_away_is_missed(service_accounts: ServiceAccounts) -> None:
    """A process is not ready, warns or ends; or what people wait for does not come about."""
    rights = [it for it in service_accounts.permissions if it.resource != NEVER_ASKED[1]]
    drawn = random.Random(SEED).sample(rights, _SAMPLE)  # noqa: S311 - no secret
    found: dict[RbacPermission, list[str]] = {}
    print(f"\nseed {SEED}, of {len(service_accounts.permissions)} rights:")
    at_the_start = [
        right for right in drawn if _is_for_a_start(right, service_accounts.permissions)
    ]
    for together in _rounds(at_the_start):
        found |= await _started_without(service_accounts, together)
    for number, right in enumerate(it for it in drawn if it not in at_the_start):
        found[right] = await _played_without(service_accounts, right, f"without-{number}")
    for right, faults in found.items():
        print(f"  without {right}: {'; '.join(faults) or 'NOTHING'}")

    assert len(found) == _SAMPLE
    assert [str(right) for right, faults in found.items() if not faults] == []


def _is_for_a_start(right: RbacPermission, rights: Iterable[RbacPermission]) -> bool:
    """Say whether a process needs it to begin; the others are for deeds."""
    is_followed = right.verb in ("list", "watch") and right._replace(verb="watch") in rights
    return is_followed or right.resource in _ONLY_AT_START


def _rounds(rights: Iterable[RbacPermission]) -> Iterator[list[RbacPermission]]:
    """Put together what can be missing at once: one right of each process."""
    waiting = list(rights)
    while waiting:
        first = {right.role: right for right in reversed(waiting)}
        yield list(first.values())
        waiting = [right for right in waiting if first[right.role] != right]


async def _started_without(
    service_accounts: ServiceAccounts, rights: list[RbacPermission]
) -> dict[RbacPermission, list[str]]:
    for right in rights:
        await service_accounts.revoke(right)
    try:
        troubles = await asyncio.gather(
            *(service_accounts.restart_fresh(right) for right in rights)
        )
    finally:
        for right in rights:
            await service_accounts.restore(right)
    await asyncio.gather(*(service_accounts.ready(right) for right in rights))
    return {right: [it] if it else [] for right, it in zip(rights, troubles, strict=True)}


async def _played_without(
    service_accounts: ServiceAccounts, right: RbacPermission, act: str
) -> list[str]:
    await service_accounts.revoke(right)
    if (right.resource, right.verb) == _READ_ONCE:
        await service_accounts.restart(right)
    try:
        return await run_checks(
            service_accounts.cluster, act, _WAIT_S, service_accounts.snapshot_url
        )
    finally:
        await service_accounts.restore(right)
        await remove_checks(service_accounts.cluster, act)
