"""Whether the kinds are there that a TrainJob takes."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.commands.doctor.installation import (
    MODE_EXTERNAL,
    check_results,
    crd,
    healthy_installation,
    injected_jobset,
)
from trainer_kai.cli.commands.doctor import dry_run_objects
from trainer_kai.cli.commands.doctor.facts import DryRun, InstallationFacts, Obj

POD_GROUPS = "podgroups.scheduling.run.ai"
RUNTIMES = "trainingruntimes.trainer.kubeflow.org"
CLUSTER_RUNTIMES = f"cluster{RUNTIMES}"
FIELD = "podGroupPolicy.kaiScheduler.queue"
QUEUE_FIELD = {
    "spec": {
        "properties": {
            "podGroupPolicy": {
                "properties": {
                    "kaiScheduler": {"properties": {"queue": {"type": "string"}}},
                }
            }
        }
    },
}
PATCHED = {name: crd(name, "v1alpha1", QUEUE_FIELD) for name in (RUNTIMES, CLUSTER_RUNTIMES)}


def versioned(minor: str) -> InstallationFacts:
    version = {"major": "1", "minor": minor, "gitVersion": f"v1.{minor}"}
    return healthy_installation()._replace(version=version)


def without(*names: str) -> InstallationFacts:
    facts = healthy_installation()
    return facts._replace(definitions={**facts.definitions, **dict.fromkeys(names)})


def with_field(**definitions: Any) -> InstallationFacts:
    """Return a cluster whose definitions are others."""
    facts = healthy_installation()
    return facts._replace(definitions={**facts.definitions, **definitions})


def changed(name: str, **version: Any) -> InstallationFacts:
    definition: Any = healthy_installation().definitions[name]
    (found,) = definition["spec"]["versions"]
    return with_field(**{name: {**definition, "spec": {"versions": [{**found, **version}]}}})


def of_kai(*dropped: str) -> Obj:
    """Return the schema of PodGroups without rules, and without some fields of its spec."""
    definition: Any = healthy_installation().definitions[POD_GROUPS]
    schema = _without_rules(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    for name in dropped:
        del schema["properties"]["spec"]["properties"][name]
    return {"openAPIV3Schema": schema}


def _without_rules(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: it for name, it in value.items() if name != "x-kubernetes-validations"}
        return {name: _without_rules(it) for name, it in kept.items()}
    return value


def external(facts: InstallationFacts) -> InstallationFacts:
    got = injected_jobset(**{MODE_EXTERNAL: "true"})
    return facts._replace(jobset=DryRun(dry_run_objects.jobset("default"), got))


# check, facts -> what it says of the first thing
CASES: list[Case[tuple[str, InstallationFacts], tuple[str, str]]] = [
    Case(
        "an old API server",
        ("API server", versioned("32+")),
        ("fault", "Kubernetes v1.32+ at https://127.0.0.1:6443"),
    ),
    Case(
        "one that is new enough",
        ("API server", versioned("33")),
        ("ok", "Kubernetes v1.33 at https://127.0.0.1:6443"),
    ),
    Case(
        "no JobSet",
        ("JobSet", without("jobsets.jobset.x-k8s.io")),
        ("fault", "jobsets.jobset.x-k8s.io does not exist"),
    ),
    Case(
        "a Trainer of another version",
        ("Trainer", with_field(**{RUNTIMES: crd(RUNTIMES, "v1")})),
        ("fault", f"{RUNTIMES}: v1alpha1 is not served"),
    ),
    Case(
        "a definition that is not ready",
        (
            "JobSet",
            with_field(
                **{
                    "jobsets.jobset.x-k8s.io": {
                        **crd("jobsets.jobset.x-k8s.io", "v1alpha2"),
                        "status": {},
                    }
                }
            ),
        ),
        ("fault", "jobsets.jobset.x-k8s.io: v1alpha2 is not served"),
    ),
    Case(
        "no definition of ours",
        ("definitions", without(POD_GROUPS)),
        ("fault", f"the CustomResourceDefinition {POD_GROUPS} does not exist"),
    ),
    Case(
        "a version that is not served",
        ("definitions", changed(POD_GROUPS, served=False)),
        ("fault", f"{POD_GROUPS}: v2alpha2 is not served"),
    ),
    Case(
        "definitions of a KAI",
        ("definitions", changed(POD_GROUPS, schema=of_kai())),
        ("ok", "installed by KAI, complete"),
    ),
    Case(
        "of a KAI that lacks something",
        ("definitions", changed(POD_GROUPS, schema=of_kai("stalenessGracePeriod", "subGroups"))),
        ("fault", "the API server drops spec.stalenessGracePeriod, spec.subGroups"),
    ),
    Case(
        "of a KAI that lacks something, and binds itself",
        ("definitions", external(changed(POD_GROUPS, schema=of_kai("subGroups")))),
        ("warning", "the API server drops spec.subGroups"),
    ),
    Case(
        "the queue as a field",
        ("runtime queue field", with_field(**PATCHED)),
        ("ok", f"{FIELD} is available"),
    ),
    Case(
        "in one of the two only",
        ("runtime queue field", with_field(**{RUNTIMES: PATCHED[RUNTIMES]})),
        ("fault", f"{CLUSTER_RUNTIMES} has no field {FIELD}, but the other definition has it"),
    ),
    Case(
        "gone with an upgrade of Trainer, and used",
        (
            "runtime queue field",
            healthy_installation()._replace(runtimes_with_queue_field=["torch"]),
        ),
        ("fault", f"{FIELD} is gone, but torch used it: their TrainJobs get another queue"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_what_is_there(case: Case[tuple[str, InstallationFacts], tuple[str, str]]) -> None:
    """A definition that is missing, late, or drops what we write."""
    check, facts = case.given

    assert check_results(facts, check)[0] == case.want


def test_rules_that_are_missing_are_reported() -> None:
    """Ours, of another version of the manifests."""
    facts = healthy_installation()
    pods, *others = facts.manifests.definitions
    newer = type(pods)(
        name=pods.name, version=pods.version, fields=pods.fields, rules=(*pods.rules, "a new one")
    )
    manifests = type(facts.manifests)(
        **{
            name: getattr(facts.manifests, name)
            for name in facts.manifests.__struct_fields__
            if name != "definitions"
        },
        definitions=(newer, *others),
    )

    assert check_results(facts._replace(manifests=manifests), "definitions")[0] == (
        "warning",
        "installed by trainer-kai, but in another version: validation rules are missing",
    )
