"""What every process builds alike."""

import asyncio
import json
import socket

import pytest
import structlog
from structlog.testing import CapturingLogger

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from tests.support.fakes.scripted_transport import ScriptedTransport
from trainer_kai.errors import ConfigError
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import Client, NoRequestObserver
from trainer_kai.kube.events import EventObject
from trainer_kai.kube.leader.lease import Fence, LeaseTiming
from trainer_kai.kube.process.context import event_recorder, leader_elector, lease_timing
from trainer_kai.service.metrics import Metrics
from trainer_kai.service.settings import LeaderSettings

LOG = structlog.wrap_logger(CapturingLogger(), processors=[])
FREE = {
    "metadata": {"namespace": "ours", "name": "kai", "resourceVersion": "1"},
    "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"},
}
TIMES = {"lease_s": 30, "renew_deadline_s": 20.0, "retry_s": 3.0, "write_s": 8.0}


def process(wire: ScriptedTransport) -> Client:
    rest_config = RestConfig("https://fake", StaticToken(""), namespace="ours")
    return Client(rest_config, wire, VirtualClock(), NoRequestObserver())


def written(wire: ScriptedTransport, number: int) -> tuple[str, dict[str, object]]:
    """Return where a request of the wire went, and the spec that it wrote."""
    request = wire.requests[number]
    return request.path, json.loads(request.body or b"{}")["spec"]


# the namespace of the settings -> that of the Lease
NAMESPACES: list[Case[str, str]] = [
    Case("that of the credentials", "", "ours"),
    Case("one that is named", "theirs", "theirs"),
]


@pytest.mark.parametrize("case", NAMESPACES, ids=ids)
async def test_an_elector_is_what_the_settings_say(case: Case[str, str]) -> None:
    """Its Lease, its times, and the metric while it leads and afterwards."""
    leases = FREE | {"spec": {"holderIdentity": "me"}}
    wire, metrics, seen = ScriptedTransport(FREE, leases, leases), Metrics(), list[float | None]()
    settings = LeaderSettings.model_validate({"name": "kai", "namespace": case.given} | TIMES)

    def is_leader() -> float | None:
        return metrics.registry.get_sample_value("trainer_kai_leader", {"lease": "kai"})

    async def work(_: Fence) -> None:
        seen.append(is_leader())

    one = leader_elector(process(wire), settings, metrics, LOG)
    seen.append(is_leader())
    await asyncio.wait_for(one.lead(work), 60)
    seen.append(is_leader())

    path, spec = written(wire, 1)
    assert path == f"/apis/coordination.k8s.io/v1/namespaces/{case.want}/leases/kai"
    assert spec["leaseDurationSeconds"] == 30
    assert seen == [0, 1, 0]


async def test_no_two_have_the_same_identity() -> None:
    """Also not with the same name, as containers of one pod have after each other."""
    identities = []
    for name in ("", "", "a"):
        wire = ScriptedTransport(FREE, FREE, FREE)
        one = leader_elector(process(wire), LeaderSettings(name="kai"), Metrics(), LOG, name=name)
        await asyncio.wait_for(one.lead(lambda _: asyncio.sleep(0)), 60)
        identities.append(str(written(wire, 1)[1]["holderIdentity"]))

    names = [identity.rpartition("_")[0] for identity in identities]
    assert names == [socket.gethostname(), socket.gethostname(), "a"]
    assert len(set(identities)) == 3


def test_times() -> None:
    """Each in its place; the defaults of the settings are good ones."""
    assert lease_timing(LeaderSettings.model_validate({"name": "kai"} | TIMES)) == LeaseTiming(
        30, 20, 3, 8
    )
    assert lease_timing(LeaderSettings(name="kai")) == LeaseTiming(15, 10, 2, 4)


@pytest.mark.parametrize("fault", [{"lease_s": 28}, {"retry_s": 20.0}, {"write_s": 10.0}])
def test_settings_and_lease_refuse_the_same(fault: dict[str, float]) -> None:
    """The rules stand in both: settings can name the source, the Lease is the last to look."""
    with pytest.raises(ValueError, match="should be more than"):
        LeaderSettings.model_validate({"name": "kai"} | TIMES | fault)
    settings = LeaderSettings.model_construct(**(TIMES | fault))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="must be more than"):
        lease_timing(settings)


async def test_a_recorder_counts() -> None:
    """What becomes of each Event is in the metrics."""
    wire, metrics = ScriptedTransport({"metadata": {}}), Metrics()
    client = process(wire)
    event_source = event_recorder(client, "trainer-kai-scheduler", metrics, LOG)
    event_source.post(EventObject("v1", "Pod", "ns", "a", "1"), "Tried", "text")
    running = asyncio.create_task(event_source.run())
    for _ in range(20):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])

    name, labels = "trainer_kai_events_total", {"outcome": "posted"}
    assert metrics.registry.get_sample_value(name, labels) == 1
    body = json.loads(wire.requests[0].body or b"")
    assert body["source"]["component"] == "trainer-kai-scheduler"
