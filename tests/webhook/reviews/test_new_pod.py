"""Reviews of new pods, from a real server; what an internal error does."""

import base64
import json
from typing import Any, Final

import pytest
from msgspec.structs import replace

from tests.webhook.objects import JOBSET, POD, Obj, jobset, pod, recorded, review
from tests.webhook.objects import job as replicated_job
from tests.webhook.served_webhook import serving, trainjob
from tests.webhook.trainjobs import CLUSTER_RUNTIME
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.trainjob import RuntimeRef
from webhook.cache.admission_cache import SlimTrainJob, SlimTrainJobSpec
from webhook.cache.runtimes import WatchedRuntime

PATH: Final = "/mutate/gpu-share"


def operations(response: dict[str, Any]) -> list[Obj]:
    found: list[Obj] = json.loads(base64.b64decode(response["patch"]))
    return found


async def test_a_real_pod_is_prepared() -> None:
    """As the API server sends the pod of a Deployment; each has ConfigMaps of its own."""
    async with serving() as served:
        answers = [await served.review(PATH, recorded("gpu-share-create")) for _ in range(2)]
        count = served.count("admission_reviews_total", kind="gpu-share", outcome="patched")

    first, second = ([it["value"] for it in operations(answer)] for answer in answers)
    paths = [it["path"] for it in operations(answers[0])]
    assert paths == [
        "/metadata/annotations/runai~1shared-gpu-configmap",
        "/spec/containers/0/env",
        "/spec/containers/0/envFrom",
        "/spec/volumes/-",
    ]
    assert first[0].startswith("shares-6bb5cc9ff4-")
    assert first[0].endswith("-shared-gpu")
    assert len(first[0]) == len("shares-6bb5cc9ff4--shared-gpu") + 7
    assert first[0] != second[0]
    assert count == 2


async def test_a_mistake_of_ours_lets_no_pod_pass() -> None:
    """It would see the GPUs of others."""

    def broken() -> str:
        raise ZeroDivisionError

    async with serving(new_random=broken) as served:
        response = await served.review(PATH, recorded("gpu-share-create"))

    assert (response["allowed"], response["status"]["code"]) == (False, 503)
    assert "this Pod was not changed" in response["status"]["message"]


async def test_other_pods_are_not_changed() -> None:
    async with serving() as served:
        assert "patch" not in await served.review(PATH, review(pod(), POD))


@pytest.mark.parametrize(("as_node", "wanted"), [(True, 2), (False, 1)])
async def test_a_launcher_of_mpi_gets_a_share_if_it_trains(as_node: bool, wanted: int) -> None:
    """Its runtime says so; a runtime that is not known may mean it."""
    step = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    jobs = (replicated_job("node"), replicated_job("launcher", of_job=step))
    spec = {"mlPolicy": {"mpi": {"runLauncherAsNode": as_node}}}
    named = {"metadata": {"name": CLUSTER_RUNTIME.name}, "spec": spec}
    owner = trainjob()
    meta = replace(owner.metadata, annotations={"gpu-fraction": "0.5"})
    reference = RuntimeRef(name=CLUSTER_RUNTIME.name)
    async with serving() as served:
        served.cache.put_trainjob(
            SlimTrainJob(metadata=meta, spec=SlimTrainJobSpec(runtime_ref=reference))
        )
        served.cache.runtimes.put(decode(WatchedRuntime, encode(named)))
        response = await served.review("/mutate/jobset", review(jobset(*jobs), JOBSET))

    added = [it for it in operations(response) if "gpu-fraction" in str(it)]
    assert len(added) == wanted
