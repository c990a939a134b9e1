"""What lint finds in a review: warnings, or denials of creations where a site wants them."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.case import Case, ids
from tests.webhook.objects import BUNDLED, EXTERNAL, QUEUE, Obj
from tests.webhook.served_webhook import ServedWebhook, serving
from tests.webhook.trainjob_reviews import ReviewResult, ask
from tests.webhook.trainjobs import CLUSTER_RUNTIME, patch, submitted
from trainer_kai.api.cluster_kinds import Node
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.kai_kinds import Topology, TopologyLevel, TopologySpec
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.resources import NODES, PRIORITY_CLASSES, TOPOLOGIES
from trainer_kai.api.trainjob import Runtime
from trainer_kai.policy.podgroups.manifests import GroupingRules
from webhook.cache.runtimes import MAX_TEXT_BYTES, RuntimeCache, WatchedRuntime
from webhook.reviews.answer_trainjob import AdmissionPolicy
from webhook.rules.trainjob_validate import LintPolicy

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
GPU = "nvidia.com/gpu"
NODE: Obj = {
    "name": "node",
    "template": {
        "metadata": {"labels": {STEP: "trainer"}},
        "spec": {"template": {"spec": {"containers": [{"name": "node"}]}}},
    },
}
WARN, DENY = LintPolicy(), LintPolicy(denies=True)
GROWS = LintPolicy(denies=True, autoscales=True)
LARGE = (
    f"spec.trainer.resourcesPerNode.limits[{GPU}]: each pod of node requests 16 {GPU}, and the "
    "one eligible node has 8. Request at most 8"
)
GOLD = (
    "metadata.labels[priorityClassName]: PriorityClass 'gold' does not exist, so the label is "
    "ignored. None exists: create it, or remove the name"
)
H100 = {"nodeSelector": {"gpu": "h100"}}


def known_to(served: ServedWebhook) -> None:
    """Tell a webhook of a runtime, one node with 8 GPUs, and that there is no priority class."""
    template = {"spec": {"replicatedJobs": [NODE]}}
    metadata = {"name": CLUSTER_RUNTIME.name}
    whole = {"metadata": metadata, "spec": {"mlPolicy": {"numNodes": 1}, "template": template}}
    served.cache.runtimes.put(decode(WatchedRuntime, encode(whole)))
    cluster = served.cache.cluster
    allocatable = {"cpu": "8", "pods": "10", GPU: "8"}
    node = {"metadata": {"name": "n"}, "status": {"allocatable": allocatable}}
    cluster.put_node(decode(Node, encode(node)))
    cluster.mark_listed(NODES.plural)
    cluster.mark_listed(PRIORITY_CLASSES.plural)


def job(gpus: int = 1, **parts: Any) -> Obj:
    labels = parts.pop("labels", None)
    limits = {"limits": {GPU: gpus}}
    return submitted(labels, trainer={"resourcesPerNode": limits}, **parts)


def selecting() -> Obj:
    """Return a patch by which pods select nodes that there are not."""
    pods = {"template": {"spec": {"template": {"spec": H100}}}}
    return patch({"name": "node", **pods})


TODAY = "pods of node select gpu=h100, which no node has today. The pods wait for such a node"
AT = (
    "ClusterTrainingRuntime torch, spec.template.spec.replicatedJobs[0].template.spec.template.spec"
)
REVIEWS: list[Case[tuple[LintPolicy, Obj, Obj | None], ReviewResult]] = [
    Case("nothing is wrong", (WARN, job(8), None), ReviewResult(0, "", [])),
    Case("what could never start is told", (WARN, job(16), None), ReviewResult(0, "", [LARGE])),
    Case("or refused", (DENY, job(16), None), ReviewResult(422, LARGE, [])),
    Case("or neither", (LintPolicy(is_enabled=False), job(16), None), ReviewResult(0, "", [])),
    Case(
        "on a cluster that grows it is told only",
        (GROWS, job(16), None),
        ReviewResult(0, "", [LARGE]),
    ),
    Case(
        "a node that may come denies nothing",
        (DENY, job(runtimePatches=[selecting()]), None),
        ReviewResult(0, "", [f"spec.runtimeRef: {TODAY} ({AT})"]),
    ),
    Case(
        "and on a cluster that adds nodes it is not reported",
        (GROWS, job(runtimePatches=[selecting()]), None),
        ReviewResult(0, "", []),
    ),
    Case(
        "a name that is not there is told",
        (WARN, job(labels={"priorityClassName": "gold"}), None),
        ReviewResult(0, "", [GOLD]),
    ),
    Case(
        "or refused",
        (DENY, job(labels={"priorityClassName": "gold"}), None),
        ReviewResult(422, GOLD, []),
    ),
    Case(
        "an invalid share of a GPU is refused",
        (DENY, submitted(annotations={"gpu-fraction": "2"}), None),
        ReviewResult(
            422,
            (
                "metadata.annotations[gpu-fraction]: '2' must be a number above 0 and below 1, "
                f"such as 0.5. For whole GPUs remove the annotation and request {GPU}: 2. "
                "Otherwise no pod starts"
            ),
            [],
        ),
    ),
    Case(
        "a share where nothing binds it is refused",
        (DENY._replace(shares_gpus=False), submitted(annotations={"gpu-memory": "9"}), None),
        ReviewResult(
            422,
            (
                "metadata.annotations[gpu-memory]: shares of GPUs are switched off (setting "
                "gpu_sharing.enabled), so the pods never start. Remove the annotation, and "
                f"request whole GPUs ({GPU}) or a MIG profile"
            ),
            [],
        ),
    ),
    Case(
        "beside what others refuse",
        (DENY, job(16, labels={QUEUE: "-"}), None),
        ReviewResult(422, "", []),
    ),
    Case(
        "what exists is not refused",
        (DENY, job(16, labels={QUEUE: "b"}, suspend=True), job(16, suspend=True)),
        ReviewResult(0, "", [LARGE]),
    ),
    Case(
        "and not even told where its queue stays",
        (DENY, job(16, labels={"priorityClassName": "gold"}), job(16)),
        ReviewResult(0, "", []),
    ),
    Case(
        "what cannot be meant is told once",
        (DENY, job(labels={"kai.scheduler/preemptibility": "x"}), None),
        ReviewResult(
            0,
            "",
            [
                (
                    "metadata.labels[kai.scheduler/preemptibility]: 'x' must be 'preemptible' or "
                    "'non-preemptible'"
                )
            ],
        ),
    ),
    Case(
        "a TrainJob that is too long is not looked at",
        (DENY, job(16, initializer={"x": "y" * MAX_TEXT_BYTES}), None),
        ReviewResult(0, "", []),
    ),
]


@pytest.mark.parametrize("case", REVIEWS, ids=ids)
async def test_lint_messages(case: Case[tuple[LintPolicy, Obj, Obj | None], ReviewResult]) -> None:
    """A setting decides what comes of it; only creations are denied."""
    lint_policy, obj, old = case.given
    async with serving(admission_policy=AdmissionPolicy(BUNDLED, lint=lint_policy)) as served:
        known_to(served)
        found = await ask(served, obj, old)
    if case.name == "beside what others refuse":
        assert found.code == 422
        assert found.message.startswith(f"metadata.labels[{QUEUE}]: '-' must be")
        assert found.message.endswith(LARGE)
    else:
        assert found == ReviewResult(
            case.want.code, case.want.message, [it[:256] for it in case.want.warnings]
        )


TOPOLOGY = "kai.scheduler/topology"
RACK = f"{TOPOLOGY}-required-placement"
# The annotations of a TrainJob; what follows from them where the only Topology has racks.
PLACEMENTS = [
    Case("a level that exists", {TOPOLOGY: "racks", RACK: "rack"}, ""),
    Case(
        "a Topology that does not exist",
        {TOPOLOGY: "dc", RACK: "rack"},
        f"metadata.annotations[{TOPOLOGY}]: Topology 'dc' does not exist, so no pod starts until "
        "it does. Name an existing one: racks",
    ),
    Case(
        "a level that does not exist",
        {TOPOLOGY: "racks", RACK: "block"},
        f"metadata.annotations[{RACK}]: Topology 'racks' has no level 'block', so no pod starts "
        "until it does. Name one of its levels: rack",
    ),
]


@pytest.mark.parametrize("case", PLACEMENTS, ids=ids)
@pytest.mark.parametrize("rules", [BUNDLED, EXTERNAL])
async def test_a_placement_by_topology(
    rules: GroupingRules, case: Case[dict[str, str], str]
) -> None:
    """One that exists is no reason to deny; both schedulers do what it asks for."""
    async with serving(admission_policy=AdmissionPolicy(rules, lint=DENY)) as served:
        known_to(served)
        racks = TopologySpec(levels=(TopologyLevel(node_label="rack"),))
        served.cache.cluster.put_topology(Topology(metadata=Meta(name="racks"), spec=racks))
        served.cache.cluster.mark_listed(TOPOLOGIES.plural)
        node = {"metadata": {"name": "n", "labels": {"rack": "r"}}}
        node["status"] = {"allocatable": {"cpu": "8", "pods": "10", GPU: "8"}}
        served.cache.cluster.put_node(decode(Node, encode(node)))
        found = await ask(served, submitted(annotations=case.given))

    assert (found.message if found.code else "", found.code) == (case.want, 422 if case.want else 0)


async def test_until_a_runtime_is_known_there_is_no_message() -> None:
    """A TrainJob may come before its runtime, and a process has to begin somewhere."""
    async with serving(admission_policy=AdmissionPolicy(BUNDLED, lint=DENY)) as served:
        assert await ask(served, job(16)) == ReviewResult(0, "", [])


class Broken(RuntimeCache):
    def whole(self, key: Key) -> Runtime | None:
        raise ZeroDivisionError(key)


async def test_a_mistake_in_lint_skips_no_other_rule() -> None:
    """The other results for a TrainJob are returned, and the log has the error."""
    async with serving(admission_policy=AdmissionPolicy(BUNDLED, lint=DENY)) as served:
        served.cache.runtimes = Broken()
        known_to(served)
        with capture_logs() as logs:
            found = await ask(served, job(16, labels={QUEUE: "-"}))

    assert found.code == 422
    assert [it["event"] for it in logs] == ["trainjob not linted", "object denied"]
