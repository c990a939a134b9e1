"""What happens to a shared GPU while pods are bound to it: nothing is shared twice or lost."""

from collections import Counter

from scheduler.shell.bind.steps import PodBind
from scheduler.state.commands import PodGroupCommands
from tests.scheduler.shell.bind.gpu.conftest import (
    DEVICE,
    GROUP,
    SharingHarness,
    reservation_of_kai,
    share,
)
from tests.support.state.objects import group, node
from trainer_kai.api.meta import Key

_DEVICES = "trainer-kai.dev/gpu-devices"


def used(sharing: SharingHarness) -> Counter[str]:
    """Return how much of each device the pods on nodes have, in thousandths."""
    shares: Counter[str] = Counter()
    for name in sharing.groups_of_pods():
        obj = sharing.api.get("Pod", name)
        annotations = obj["metadata"]["annotations"]
        if obj["spec"].get("nodeName"):
            shares[annotations[_DEVICES]] += round(float(annotations["gpu-fraction"]) * 1000)
    return shares


def lose_reservation(sharing: SharingHarness) -> None:
    (lost,) = sharing.reservation_pods()
    sharing.api.delete("Pod", lost["metadata"]["name"])


async def test_a_reservation_is_lost_during_a_bind(sharing: SharingHarness) -> None:
    """No watch shows a change of the pod, and its GPU is reserved again."""
    sharing.api.put(node("a", gpu=1), share("p"))
    sharing.api.delay_s = lambda what: 5.0 if what.startswith("bind p") else 0.0
    async with sharing.leading():
        await sharing.advance(2)
        lose_reservation(sharing)
        await sharing.advance(20)

        assert sharing.api.node_of_pods()["p"] == "a"
        assert len(sharing.reservation_pods()) == 1


async def test_a_reservation_is_lost_before_the_bind(sharing: SharingHarness) -> None:
    """The bind is not sent: the GPU may be that of another pod by then."""
    sharing.api.put(node("a", gpu=1), share("p"))
    sharing.api.delay_s = lambda what: 3.0 if "-evar" in what else 0.0
    async with sharing.leading():
        await sharing.advance(2)
        lose_reservation(sharing)
        sharing.is_agent_silent = True
        await sharing.advance(5)
        assert "p" not in sharing.api.node_of_pods()
        sharing.is_agent_silent = False
        sharing.api.delay_s = lambda _: 0.0
        await sharing.advance(50)

        assert sharing.api.node_of_pods()["p"] == "a"
        assert len(sharing.reservation_pods()) == 1


async def test_a_reservation_is_lost_while_another_pod_waits_for_its_gpu(
    sharing: SharingHarness,
) -> None:
    """Its pod is not labelled with a GPU that is not reserved; an Event says why it waits."""
    sharing.api.put(node("a", gpu=1), node("b", gpu=1), group("g", minMember=2))
    sharing.api.put(share("p", "0.9", group="g"), share("r", "0.9", group="g"))
    sharing.is_agent_silent = True
    async with sharing.leading():
        await sharing.advance(1)
        lost, other = sharing.reservation_pods()
        sharing.annotate(lost, {DEVICE: "GPU-x"})
        await sharing.advance(1)
        sharing.api.delete("Pod", lost["metadata"]["name"])
        sharing.annotate(other, {DEVICE: "GPU-y"})
        await sharing.advance(1)
        (bound,) = {"p", "r"} & sharing.api.node_of_pods().keys()
        (waiting,) = {"p", "r"} - {bound}
        assert f"patch pods/status {waiting}" not in sharing.api.written()
        assert (f"Pod {waiting}", "GpuReservationFailed") in sharing.events()
        sharing.is_agent_silent = False
        await sharing.advance(60)

        assert {"p", "r"} <= sharing.api.node_of_pods().keys()
        assert len(sharing.reservation_pods()) == 2


async def test_users_of_a_lost_gpu_count_while_another_pod_is_bound(
    sharing: SharingHarness,
) -> None:
    """A pod waits in its back-off with a share of that GPU, and a third one may not get more."""
    sharing.api.put(node("a", gpu=2), share("u", "0.7"))
    async with sharing.leading():
        await sharing.advance(3)
        sharing.api.refuse_with = lambda what: 403 if what.startswith("bind p") else None
        sharing.api.put(share("p", "0.2"))
        await sharing.advance(20)
        lose_reservation(sharing)
        sharing.api.put(share("q", "0.5"))
        for _ in range(60):
            await sharing.advance(1)
            assert max(used(sharing).values(), default=0) <= 1000


async def test_a_pod_that_is_bound_already_keeps_all(sharing: SharingHarness) -> None:
    """The bind is not seen yet, and its outcome was not: nothing is undone."""
    sharing.api.put(share("p"))
    async with sharing.leading():
        await sharing.advance(0.1)
        sharing.api.holds_back_events = True
        waiting = sharing.api.get("Pod", "p")
        annotations = {**waiting["metadata"]["annotations"], _DEVICES: "GPU-1"}
        meta = {**waiting["metadata"], "labels": {GROUP: "g1"}, "annotations": annotations}
        sharing.api.put({**waiting, "metadata": meta, "spec": {**waiting["spec"], "nodeName": "a"}})
        commands = PodGroupCommands(Key("ns", "p"), None, (), (), None)
        await sharing.shares.undo(PodBind(Key("ns", "p"), "a", "p", commands))

        assert sharing.groups_of_pods() == {"p": ["g1"]}
        assert sharing.api.get("Pod", "p")["metadata"]["annotations"][_DEVICES] == "GPU-1"


async def test_of_two_reservation_pods_the_right_one_stays(sharing: SharingHarness) -> None:
    """The one that holds the GPU of the running pods, whichever is older."""
    bound = share("p", "0.7", node="a", labels={GROUP: "g1"})
    bound["metadata"]["annotations"] |= {"received-resource-type": "Fraction", _DEVICES: "GPU-B"}
    first, second = map(reservation_of_kai, ("gpu-reservation-a-a", "gpu-reservation-a-b"))
    first["metadata"]["annotations"] = {DEVICE: "GPU-A"}
    second["metadata"]["annotations"] = {DEVICE: "GPU-B"}
    sharing.api.put(node("a", gpu=2), first, second, bound)
    async with sharing.leading():
        await sharing.advance(5)

        assert sharing.api.has("Pod", "p")
        assert [it["metadata"]["name"] for it in sharing.reservation_pods()] == [
            "gpu-reservation-a-b"
        ]


async def test_what_kai_bound_is_deleted_if_its_gpu_changes(sharing: SharingHarness) -> None:
    """Its pods do not say which GPU they have: it is remembered while it is reserved."""
    bound = share("p", "0.7", node="a", labels={GROUP: "g1"})
    bound["metadata"]["annotations"] |= {"received-resource-type": "Fraction"}
    sharing.api.put(node("a", gpu=2), reservation_of_kai(), bound)
    async with sharing.leading():
        await sharing.advance(3)
        lose_reservation(sharing)
        await sharing.advance(6)

        assert not sharing.api.has("Pod", "p")
        assert ("Pod p", "GpuReservationLost") in sharing.events()


async def test_two_podgroups_open_one_gpu_and_one_of_them_fails(sharing: SharingHarness) -> None:
    """Both wait for the same reservation pod; the other one keeps it."""
    sharing.api.put(node("a", gpu=1), group("g"), group("h"))
    sharing.api.put(share("p", "0.5", group="g"), share("r", "0.5", group="h"))
    sharing.api.refuse_with = lambda what: 403 if what.startswith("bind p") else None
    async with sharing.leading():
        await sharing.advance(5)
        assert sharing.api.node_of_pods()["r"] == "a"
        sharing.api.refuse_with = lambda _: None
        await sharing.advance(60)

        assert sharing.api.node_of_pods()["p"] == "a"
        assert used(sharing) == {"GPU-a-0": 1000}
        assert len(sharing.reservation_pods()) == 1


async def test_the_next_term_goes_on_where_the_last_one_ended(sharing: SharingHarness) -> None:
    """A device that was awaited then is not given up by what is left of the old term."""
    sharing.api.put(node("a", gpu=1), share("p"))
    sharing.is_agent_silent = True
    async with sharing.leading():
        await sharing.advance(30)
    sharing.lead_again()
    sharing.is_agent_silent = False
    async with sharing.leading():
        await sharing.advance(60)

        assert sharing.api.node_of_pods()["p"] == "a"
        assert len(sharing.reservation_pods()) == 1


async def test_many_silent_nodes_keep_no_gpu_from_being_freed(sharing: SharingHarness) -> None:
    """Lost reservations are awaited beside the rest of the work."""
    for number in range(40):
        sharing.api.put(node(f"n{number}", gpu=1), share(f"p{number}", "0.9"))
    async with sharing.leading():
        await sharing.advance(5)
        sharing.is_agent_silent = True
        last = sharing.reservation_pods()[-1]
        for lost in sharing.reservation_pods()[:-1]:
            sharing.api.delete("Pod", lost["metadata"]["name"])
        await sharing.advance(5)
        here = next(
            name
            for name, groups in sharing.groups_of_pods().items()
            if groups == [last["metadata"]["labels"][GROUP]]
        )
        sharing.api.delete("Pod", here)
        await sharing.advance(2)

        assert not sharing.api.has("Pod", last["metadata"]["name"])
