"""What counts where neither a workload nor its pods name a class: KAI's defaults, and settings."""

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.policy.workloads.objects import KAI, manifests, template, workload
from trainer_kai.policy.podgroups.grouping import plan_podgroups
from trainer_kai.policy.podgroups.manifests import GroupingRules, podgroup_manifests
from trainer_kai.policy.queueing.kind_defaults import KindDefault, KindDefaults
from trainer_kai.policy.workloads.kubeflow import JAX_KIND
from trainer_kai.service.setting_checks import read_kind_defaults

KINDS: list[Case[tuple[str, str], str]] = [
    Case("a Deployment", ("apps", "Deployment"), "inference"),
    Case("a Deployment of another group", ("example.com", "Deployment"), "train"),
    Case("a revision of Knative", ("serving.knative.dev", "Revision"), "inference"),
    Case("a Notebook", ("kubeflow.org", "Notebook"), "build"),
    Case("a StatefulSet", ("apps", "StatefulSet"), "train"),
    Case("a LeaderWorkerSet", ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"), "train"),
    Case("an unknown kind", ("example.com", "Thing"), "train"),
    Case("a pod", ("", "Pod"), "train"),
]


@pytest.mark.parametrize("case", KINDS, ids=ids)
def test_the_default_class_of_a_kind(case: Case[tuple[str, str], str]) -> None:
    assert KindDefaults().of(*case.given) == KindDefault(case.want)


def test_the_setting_counts_first() -> None:
    text = "Deployment.apps=train/preemptible, Notebook=small, Deployment=other"
    defaults = KindDefaults(read_kind_defaults(text))

    assert defaults.of("apps", "Deployment") == KindDefault("train", "preemptible")
    assert defaults.of("example.com", "Deployment") == KindDefault("other")
    assert defaults.of("kubeflow.org", "Notebook") == KindDefault("small")
    assert defaults.of("apps", "StatefulSet") == KindDefault("train")


def test_a_podgroup_has_the_default_of_its_kind() -> None:
    """What the workload or its pods name counts first."""
    defaults = KindDefaults(read_kind_defaults("JAXJob.kubeflow.org=long/non-preemptible"))
    rules = GroupingRules("bundled", KAI, "q", kind_defaults=defaults)
    it = workload(JAX_KIND, {"jaxReplicaSpecs": {"Worker": {"template": template()}}})
    (fields,) = podgroup_manifests(it, plan_podgroups(it, KAI), rules)
    own = {"priorityClassName": "high", "kai.scheduler/preemptibility": "preemptible"}
    named = workload(
        JAX_KIND, {"jaxReplicaSpecs": {"Worker": {"template": template()}}}, labels=own
    )
    (fields_named,) = podgroup_manifests(named, plan_podgroups(named, KAI), rules)

    assert fields["spec"]["priorityClassName"] == "long"
    assert fields["spec"]["preemptibility"] == "non-preemptible"
    assert fields_named["spec"]["priorityClassName"] == "high"
    assert fields_named["spec"]["preemptibility"] == "preemptible"
    assert manifests(it)[0]["spec"]["priorityClassName"] == "train"
