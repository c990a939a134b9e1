"""A scheduler on an API server in memory, with the controller that frees claims of pods."""

from collections import Counter
from typing import Final

import pytest

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.fakes.fake_cluster import FakeCluster, Fields

_ROUND_S: Final = 0.5


class ClaimHarness(SchedulerHarness):
    """Plays Kubernetes too: a claim whose pods are gone is free, and goes with its own pod."""

    def __init__(self, api: FakeCluster | None = None, selector_steps: int = 0) -> None:
        super().__init__(api, selector_steps=selector_steps)
        self.is_controller_silent = False

    def successor(self) -> "ClaimHarness":
        return ClaimHarness(self.api)

    async def advance(self, seconds: float) -> None:
        """Let time pass; after each half second no device is given to two claims."""
        while seconds > 0:
            await super().advance(min(seconds, _ROUND_S))
            seconds -= _ROUND_S
            self.check_ledger()
            if not self.is_controller_silent:
                self._free_claims()

    def claims(self) -> dict[str, Fields]:
        return {it: self.api.get("ResourceClaim", it) for it in self.api.names("ResourceClaim")}

    def allocated(self) -> dict[str, str]:
        """Return the devices of each claim, and for which pods it is reserved."""
        return {
            name: " ".join([*_devices(it), *(f"@{user['name']}" for user in _users(it))])
            for name, it in sorted(self.claims().items())
        }

    def check_ledger(self) -> None:
        """Check that no device is in two claims, and that bound pods have all of theirs."""
        devices = Counter(device for it in self.claims().values() for device in _devices(it))
        assert not [it for it, count in devices.items() if count > 1]
        for pod, node in self.api.node_of_pods().items():
            statuses = self.api.get("Pod", pod)["status"].get("resourceClaimStatuses", ())
            for it in statuses:
                claim = self.api.get("ResourceClaim", it["resourceClaimName"])
                assert pod in [user["name"] for user in _users(claim)]
                assert all(device.startswith(f"{node}/") for device in _devices(claim))

    def _free_claims(self) -> None:
        for name, it in self.claims().items():
            owner = next(iter(it["metadata"].get("ownerReferences", ())), None)
            if owner is not None and not self.api.has("Pod", owner["name"]):
                self.api.delete("ResourceClaim", name)
                continue
            users = [user for user in _users(it) if self.api.has("Pod", user["name"])]
            if len(users) < len(_users(it)):
                status = {**it["status"], "reservedFor": users} if users else {}
                self.api.put({**it, "kind": "ResourceClaim", "status": status})


def _users(claim: Fields) -> list[Fields]:
    return list(claim.get("status", {}).get("reservedFor") or ())


def _devices(claim: Fields) -> list[str]:
    allocation = claim.get("status", {}).get("allocation") or {}
    results = allocation.get("devices", {}).get("results", ())
    return [f"{it['pool']}/{it['device']}" for it in results]


@pytest.fixture
def harness() -> ClaimHarness:
    return ClaimHarness()
