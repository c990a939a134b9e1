"""The two teams without the tenant: the bounds of every test here hold."""

from tests.hostile.conftest import SimulateFixture
from tests.hostile.objects import VICTIMS, cluster, pod, pod_group


def test_without_a_tenant_both_victims_get_their_quota(simulate: SimulateFixture) -> None:
    """Each victim's gang of eight starts on the sixteen GPUs."""
    gangs = [
        it
        for name in VICTIMS
        for it in (pod_group(name, "job", 8), *(pod(name, f"p{n}", 1, "job") for n in range(8)))
    ]
    assert len(simulate([*cluster(), *gangs]).binds) == 16
