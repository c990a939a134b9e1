"""Pods that share a GPU are bound step by step, and nothing is left of a bind that failed."""

import pytest

from scheduler.shell.bind.gpu.share_step import ShareOptions
from tests.scheduler.shell.bind.gpu.conftest import DEVICE, GROUP, SharingHarness, share
from tests.support.state.objects import group, node, pod
from trainer_kai.api.names import GPU
from trainer_kai.policy.podgroups.avoided_nodes import AvoidTimes

_RESERVED = "post pods"
_RELEASED = "delete pods gpu-"
_STEPS = (
    _RESERVED,
    "patch pods/status p",
    "patch configmaps p-x1y2z3a-shared-gpu-0",
    "patch configmaps p-x1y2z3a-shared-gpu-0-evar",
    "bind p to a",
)


async def test_two_pods_share_one_gpu(sharing: SharingHarness) -> None:
    """Both have the label of one group, and their ConfigMaps name its device."""
    sharing.api.put(node("a", gpu=1), share("p", "0.7"), share("r", "0.2"))
    async with sharing.leading():
        await sharing.advance(3)

        assert sharing.api.node_of_pods().items() >= {"p": "a", "r": "a"}.items()
        (reservation,) = sharing.reservation_pods()
        name = reservation["metadata"]["labels"][GROUP]
        assert sharing.groups_of_pods() == {"p": [name], "r": [name]}
        data = sharing.api.get("ConfigMap", "p-x1y2z3a-shared-gpu-0")["data"]
        assert data == {
            "NVIDIA_VISIBLE_DEVICES": "GPU-a-0",
            "GPU_PORTION": "0.70",
            "RUNAI_NUM_OF_GPUS": "0.70",
        }
        direct = sharing.api.get("ConfigMap", "r-x1y2z3a-shared-gpu-0-evar")
        assert direct["data"] == {"NVIDIA_VISIBLE_DEVICES": "GPU-a-0"}
        owners = direct["metadata"]["ownerReferences"]
        assert owners == [{"apiVersion": "v1", "kind": "Pod", "name": "r", "uid": "r"}]
        annotations = sharing.api.get("Pod", "p")["metadata"]["annotations"]
        assert annotations["received-resource-type"] == "Fraction"
        assert annotations["trainer-kai.dev/gpu-devices"] == "GPU-a-0"


@pytest.mark.parametrize(("cdi", "limits"), [(False, False), (True, False), (False, True)])
async def test_what_the_container_is_told(
    sharing: SharingHarness, *, cdi: bool, limits: bool
) -> None:
    """With CDI the name of the device has a kind; HAMi-core gets the part of the memory in MiB."""
    sharing.share_options = ShareOptions(limits_memory=limits, cdi=cdi, gpu_resources=(GPU,))
    sharing.lead_again()
    labels = {"nvidia.com/gpu.memory": "40960"}
    sharing.api.put(node("a", gpu=1, labels=labels), share("p", "0.7"))
    async with sharing.leading():
        await sharing.advance(3)
        data = sharing.api.get("ConfigMap", sharing.config_maps()[0])["data"]

        kind = "k8s.device-plugin.nvidia.com/gpu=" if cdi else ""
        assert data["NVIDIA_VISIBLE_DEVICES"] == f"{kind}GPU-a-0"
        limit = "28630m" if limits else None  # of 40,900 MiB
        assert data.get("CUDA_DEVICE_MEMORY_LIMIT") == limit


async def test_each_step_comes_after_the_one_before(sharing: SharingHarness) -> None:
    """A pod is labelled when the device is known, and bound when its ConfigMaps are there."""
    sharing.api.put(node("a", gpu=1), share("p"))
    async with sharing.leading():
        await sharing.advance(3)
        written = sharing.api.written()
        steps = [it for it in written if it.startswith(_STEPS)]

        assert steps[0].startswith("post pods gpu-reservation-")
        assert sorted(steps[2:4]) == sorted(_STEPS[2:4])
        assert (steps[1], steps[4:]) == (_STEPS[1], [_STEPS[4]])


async def test_the_reservation_pod_is_as_kai_expects_it(sharing: SharingHarness) -> None:
    """No taint removes it: others may share the GPU that tolerate what the first pod does not."""
    sharing.api.put(node("a", gpu=1), share("p"))
    async with sharing.leading():
        await sharing.advance(1)
        (made,) = sharing.reservation_pods()

        meta, spec = made["metadata"], made["spec"]
        assert meta["namespace"] == meta["labels"]["app"] == "kai-resource-reservation"
        assert meta["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
        assert spec["nodeName"] == "a"
        assert spec["tolerations"] == [{"operator": "Exists"}]
        assert spec["serviceAccountName"] == "kai-resource-reservation"
        assert (spec["runtimeClassName"], spec["priorityClassName"]) == ("nvidia", "trainer-kai")
        container = spec["containers"][0]
        assert container["name"] == "resource-reservation"
        one = {"nvidia.com/gpu": "1"}
        assert container["resources"] == {"requests": one, "limits": one}


async def test_shares_of_two_gpus(sharing: SharingHarness) -> None:
    """Only the labels with the group in their name are set, and both devices are visible."""
    sharing.api.put(node("a", gpu=2), share("p", devices=2))
    async with sharing.leading():
        await sharing.advance(3)

        labels = sharing.api.get("Pod", "p")["metadata"]["labels"]
        groups = [it["metadata"]["labels"][GROUP] for it in sharing.reservation_pods()]
        assert len(groups) == 2
        assert GROUP not in labels
        assert {name: text for name, text in labels.items() if name.startswith(GROUP)} == {
            f"{GROUP}/{it}": it for it in groups
        }
        visible = sharing.api.get("ConfigMap", "p-x1y2z3a-shared-gpu-0")["data"]
        assert set(visible["NVIDIA_VISIBLE_DEVICES"].split(",")) == {"GPU-a-0", "GPU-a-1"}


async def test_the_last_share_frees_the_gpu(sharing: SharingHarness) -> None:
    """The reservation pod stays while a pod uses its GPU, and then a whole GPU fits."""
    sharing.api.put(node("a", gpu=1), share("p"), share("r"))
    async with sharing.leading():
        await sharing.advance(3)
        sharing.api.put(pod("whole"))
        sharing.api.delete("Pod", "p")
        await sharing.advance(2)
        assert len(sharing.reservation_pods()) == 1
        sharing.api.delete("Pod", "r")
        await sharing.advance(3)

        assert sharing.reservation_pods() == []
        assert sharing.api.node_of_pods() == {"whole": "a"}


async def test_a_plan_from_before_a_gpu_is_released(sharing: SharingHarness) -> None:
    """A pod that it puts onto that GPU waits for another reservation pod."""
    sharing.api.put(node("a", gpu=1), share("p"))
    async with sharing.leading():
        await sharing.advance(3)
        sharing.planning_s = 0.3
        sharing.api.delay_s = lambda what: 1.0 if what.startswith(_RELEASED) else 0.0
        sharing.api.put(share("r"))
        await sharing.advance(0.1)  # its plan has begun
        sharing.api.delete("Pod", "p")
        await sharing.advance(5)

        assert _steps(sharing) == ["post", "delete", "post", "bind"]
        assert len(sharing.reservation_pods()) == 1


async def test_a_release_whose_answer_is_lost(sharing: SharingHarness) -> None:
    """No pod is bound to the GPU although no watch shows yet that it is released."""
    sharing.api.put(node("a", gpu=1), share("p"))
    async with sharing.leading():
        await sharing.advance(3)
        sharing.planning_s = 0.3

        def lose_answer(what: str) -> int | None:
            if not what.startswith(_RELEASED):
                return None
            if not lost:
                sharing.api.holds_back_events = True
                lost.append(what.rpartition(" ")[2])
                sharing.api.delete("Pod", lost[0])
            return 429 if sharing.api.holds_back_events else None  # of later attempts

        lost: list[str] = []
        sharing.api.refuse_with = lose_answer
        sharing.api.put(share("r"))
        await sharing.advance(0.1)  # its plan has begun
        sharing.api.delete("Pod", "p")
        await sharing.advance(1)
        assert "r" not in sharing.api.node_of_pods()
        sharing.api.holds_back_events = False
        sharing.api.deliver()
        await sharing.advance(10)

        assert _steps(sharing) == ["post", "post", "bind"]
        assert len(sharing.reservation_pods()) == 1


def _steps(sharing: SharingHarness) -> list[str]:
    names = (_RESERVED, _RELEASED, "bind r")
    return [it.split()[0] for it in sharing.api.written() if it.startswith(names)]


@pytest.mark.parametrize("step", _STEPS)
@pytest.mark.parametrize("status", [403, 409, 500])
async def test_a_step_fails(sharing: SharingHarness, step: str, status: int) -> None:
    """Nothing is left of what came before it; the pod is bound when the step succeeds."""
    sharing.api.put(node("a", gpu=1), share("p"))
    sharing.api.refuse_with = lambda what: status if what.startswith(step) else None
    async with sharing.leading():
        await sharing.advance(100)
        assert "p" not in sharing.api.node_of_pods()
        sharing.api.delete("Node", "a")
        sharing.api.refuse_with = lambda _: None
        await sharing.advance(100)
        assert sharing.groups_of_pods() == {}
        assert sharing.config_maps() == []
        assert sharing.reservation_pods() == []
        sharing.api.put(node("a", gpu=1))
        await sharing.advance(5)

        assert sharing.api.node_of_pods()["p"] == "a"
        assert len(sharing.reservation_pods()) == 1


async def test_a_refused_bind_is_undone_before_its_back_off(sharing: SharingHarness) -> None:
    """The pod keeps its place meanwhile, but neither labels nor ConfigMaps."""
    sharing.api.put(node("a", gpu=1), share("p"))
    sharing.api.refuse_with = lambda what: 403 if what.startswith("bind p") else None
    async with sharing.leading():
        await sharing.advance(20)

        assert "patch pods/status p" in sharing.api.written()
        assert sharing.groups_of_pods() == {}
        assert sharing.config_maps() == []


async def test_a_silent_agent(sharing: SharingHarness) -> None:
    """The reservation pod is deleted after 40 s; an Event says why, and the pod is tried again."""
    sharing.api.put(node("a", gpu=1), share("p"))
    sharing.is_agent_silent = True
    async with sharing.leading():
        await sharing.advance(39)
        (first,) = sharing.reservation_pods()
        await sharing.advance(3)
        assert first not in sharing.reservation_pods()
        assert ("Pod p", "GpuReservationFailed") in sharing.events()
        sharing.is_agent_silent = False
        await sharing.advance(5)

        assert sharing.api.node_of_pods()["p"] == "a"
        assert len(sharing.reservation_pods()) == 1


async def test_a_refused_reservation_pod(sharing: SharingHarness) -> None:
    """A kubelet that refuses it makes it fail: it is replaced, and the pod tried again."""
    sharing.api.put(node("a", gpu=1), share("p"))
    sharing.rejects = True
    async with sharing.leading():
        await sharing.advance(5)
        assert "p" not in sharing.api.node_of_pods()
        sharing.rejects = False
        await sharing.advance(30)

        assert sharing.api.node_of_pods()["p"] == "a"
        assert len(sharing.reservation_pods()) == 1


async def test_a_gang_without_all_its_gpus_binds_no_pod(sharing: SharingHarness) -> None:
    """One pod of two has no device: the other one is not bound without it."""
    sharing.api.put(node("a", gpu=1), node("b", gpu=1), group("g", minMember=2))
    sharing.api.put(share("p", "0.9", group="g"), share("r", "0.9", group="g"))
    sharing.is_agent_silent = True
    sharing.avoid_times = AvoidTimes(20, 50)
    async with sharing.leading():
        await sharing.advance(1)
        ready = sharing.reservation_pods()[0]
        sharing.annotate(ready, {DEVICE: "GPU-x"})
        await sharing.advance(60)
        assert not {"p", "r"} & sharing.api.node_of_pods().keys()
        sharing.is_agent_silent = False
        await sharing.advance(60)

        assert {"p", "r"} <= sharing.api.node_of_pods().keys()


@pytest.mark.parametrize("is_rejected", [False, True], ids=["no device in time", "refused"])
async def test_its_podgroup_gets_the_gpu_of_another_node(
    sharing: SharingHarness, is_rejected: bool
) -> None:
    """The node that gave its reservation pod no GPU is avoided, by this PodGroup alone."""
    sharing.api.put(node("a", gpu=1), node("b", gpu=1), group("g"), share("p", group="g"))
    sharing.is_agent_silent, sharing.rejecting_node = not is_rejected, "a" * is_rejected
    async with sharing.leading():
        while "NodeAvoided" not in {it["reason"] for it in sharing.api.events}:
            await sharing.advance(0.5)
        sharing.is_agent_silent = False
        await sharing.advance(5)
        assert sharing.api.node_of_pods()["p"] == "b"
        sharing.rejecting_node = ""
        sharing.api.put(share("r", "0.9"))
        await sharing.advance(5)
        assert sharing.api.node_of_pods()["r"] == "a"
    events = [it for it in sharing.api.events if it["reason"] == "NodeAvoided"]
    assert events[0]["message"].startswith("Node a is of no use: the reservation pod ")
