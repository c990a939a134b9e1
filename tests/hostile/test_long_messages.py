"""Pods that request very many resources: the message why they wait stays short."""

from tests.hostile.conftest import SimulateFixture
from tests.hostile.objects import TENANT, TENANT_QUEUE, VICTIMS, cluster, node, pod, pod_group

_MAX_BYTES = 1024
_LONG = "x" * 60


def test_a_sentence_ends_after_a_kibibyte(simulate: SimulateFixture) -> None:
    """Whatever a pod asks for, by whatever names; the teams are served as before."""
    asked = {f"{_LONG}.{_LONG}.{number}/{_LONG}": "2" for number in range(60)}
    lacking = node("odd", gpus=0)
    for has in (lacking["status"]["allocatable"], lacking["status"]["capacity"]):
        has.update(dict.fromkeys([*asked][:30], "3"))
    taker, waiter, wisher = (pod(TENANT, it, 0, group=it) for it in ("takes", "waits", "wishes"))
    taker["spec"]["nodeName"] = "odd"
    for one, count in ((taker, 30), (waiter, 30), (wisher, 60)):
        limits = dict([*asked.items()][:count])
        one["spec"]["containers"][0]["resources"] = {"limits": limits}
    taker["status"] = {"phase": "Running"}
    victims = [it for name in VICTIMS for it in (pod_group(name, name), pod(name, name, 8, name))]
    groups = [pod_group(TENANT, it, 1, TENANT_QUEUE) for it in ("takes", "waits", "wishes")]

    made = simulate([*cluster(), lacking, *groups, taker, waiter, wisher, *victims])

    report = {name: it["message"] for name, it in made.waiting.items()}
    assert set(report) == {f"{TENANT}/waits", f"{TENANT}/wishes"}
    for sentence in report.values():
        assert len(sentence.encode()) <= _MAX_BYTES
        assert sentence.endswith("…")
    assert set(made.binds) == {f"{it}/{it}" for it in VICTIMS}
