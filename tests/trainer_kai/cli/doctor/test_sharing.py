"""Queues that cannot be, that promise too much, and that are named in vain."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.world import queue
from tests.trainer_kai.cli.doctor.sound import deployment, injected, queues, sound, states
from trainer_kai.api.meta import Meta
from trainer_kai.cli.doctor import trials
from trainer_kai.cli.doctor.facts import Facts, Group, Trial

GONE = "queue gone does not exist"
NONE = "queue default-queue does not exist; there is none that can be named"


def having(*found: dict[str, Any]) -> Facts:
    """Return an installation with these queues."""
    return sound()._replace(queues=queues(*found))


def of_its_own(name: str, **environment: str) -> Facts:
    """Return an installation that was tried in a namespace with a queue."""
    got: Any = injected()
    got["metadata"]["labels"]["kai.scheduler/queue"] = name
    return having(DEFAULT, queue(name, -1))._replace(
        jobset=Trial(trials.jobset("default"), got),
        namespaces=[Meta(name="default", labels={"kai.scheduler/queue": name})],
        deployments=[deployment("trainer-kai-webhook", 2, **environment)],
    )


def classified(name: str) -> list[Any]:
    """Return a Deployment whose pods are of a priority class."""
    found: Any = deployment("trainer-kai-webhook")
    found["spec"]["template"]["spec"]["priorityClassName"] = name
    return [found]


DEFAULT = queue("default-queue", -1)

SAID: list[Case[tuple[str, Facts], tuple[str, str]]] = [
    Case("none", ("queues", having()), ("fault", "there is none")),
    Case(
        "a circle",
        ("queues", having(queue("a", parent="b"), queue("b", parent="a"))),
        ("fault", "queue a is above itself: a → b → a, queue a is above itself: a → b → a"),
    ),
    Case(
        "no parent",
        ("queues", having(queue("a", parent="b"))),
        ("fault", "queue a has the parent b, which does not exist"),
    ),
    Case(
        "a value that counts otherwise",
        ("queues", having(queue("a", weight=-1))),
        (
            "warning",
            "queue a: spec.resources.gpu.overQuotaWeight: -1 must be 0 or more: it counts as 1",
        ),
    ),
    Case(
        "children that own more than their parent",
        ("queues", having(queue("a", 8), queue("b", 6, parent="a"), queue("c", 6, parent="a"))),
        ("warning", "the children of a own 12 gpu, and it 8"),
    ),
    Case(
        "a child that owns without bound",
        ("queues", having(queue("a", 8), queue("b", -1, parent="a"))),
        ("warning", "b owns gpu without bound, and a above it 8"),
    ),
    Case(
        "a child that may have more",
        ("queues", having(queue("a", 8, 8), queue("b", 8, 12, parent="a"))),
        ("warning", "b may have 12 gpu, and a above it 8"),
    ),
    Case(
        "a quota above its limit",
        ("queues", having(queue("a", 8, 4))),
        ("warning", "a owns 8 gpu, and may have 4 only"),
    ),
    Case(
        "as much as there is",
        ("queues", having(queue("a", 8, 12), *(queue(it, 4, 12, parent="a") for it in "bc"))),
        ("ok", "3, each with a way to the top"),
    ),
    Case("no default queue", ("default queue", having(queue("a", parent="a"))), ("fault", NONE)),
    Case(
        "a default queue with children",
        ("default queue", having(DEFAULT, queue("a", -1, parent="default-queue"))),
        ("fault", "queue default-queue has children; name one below it: a"),
    ),
    Case(
        "the queue of the namespace is not the default",
        ("default queue", of_its_own("research", TRAINER_KAI_DEFAULT_QUEUE="nothing")),
        ("fault", "queue nothing does not exist; there are default-queue, research"),
    ),
    Case(
        "nor where the processes are told nothing",
        ("default queue", of_its_own("research")),
        ("ok", "default-queue takes who names none"),
    ),
    Case(
        "the queue of the namespace, and nobody shows the setting",
        ("default queue", of_its_own("research")._replace(deployments=[])),
        (
            "unknown",
            "cannot tell: namespace default names a queue of its own; try another by --try-in",
        ),
    ),
    Case(
        "a queue that is named and missing",
        (
            "named queues",
            sound()._replace(
                groups=[Group("a/pg", "gone")],
                namespaces=[Meta(name="a", labels={"kai.scheduler/queue": "gone"})],
            ),
        ),
        (
            "warning",
            f"{GONE}; there is default-queue (named by PodGroup a/pg, namespace a)",
        ),
    ),
    Case(
        "no classes",
        ("priority classes", sound()._replace(classes=["build", "inference", "other"])),
        ("warning", "there is no train, build-preemptible"),
    ),
    Case(
        "not the class of our own pods",
        ("priority classes", sound()._replace(deployments=classified("mine"))),
        ("fault", "there is no mine, which our Deployments name"),
    ),
    Case(
        "the class of our own pods, which is there",
        (
            "priority classes",
            sound()._replace(
                deployments=classified("mine"), classes=[*sound().manifests.classes, "mine"]
            ),
        ),
        ("ok", "train, build-preemptible, build, inference are there"),
    ),
    Case(
        "no GPUs",
        ("nodes", sound()._replace(gpu_nodes=(0, 3))),
        ("warning", "none of 3 has GPUs"),
    ),
]


@pytest.mark.parametrize("case", SAID, ids=ids)
def test_what_is_shared(case: Case[tuple[str, Facts], tuple[str, str]]) -> None:
    """Whoever takes nobody is a fault, a sum that does not add up a warning."""
    check, facts = case.given

    assert states(facts, check)[0] == case.want
