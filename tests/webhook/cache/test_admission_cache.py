"""What is kept of objects, and that what is gone is forgotten."""

import json

from msgspec.structs import replace

from trainer_kai.api.decode import decode
from trainer_kai.api.meta import Condition, Key, Meta
from trainer_kai.api.trainjob import TrainJobStatus
from webhook.cache.admission_cache import AdmissionCache, SlimTrainJob, TrainJobSummary

QUEUE = "kai.scheduler/queue"
KEY = Key("team", "job")


def trainjob(kind: str | None = None, **metadata: object) -> SlimTrainJob:
    ref = {"name": "torch"} | ({"kind": kind} if kind else {})
    meta = {"namespace": "team", "name": "job", "uid": "u", **metadata}
    return decode(
        SlimTrainJob, json.dumps({"metadata": meta, "spec": {"runtimeRef": ref}}).encode()
    )


def test_of_a_trainjob_only_what_a_rule_reads_is_kept() -> None:
    """The blob of kubectl and the labels of others are not."""
    cache = AdmissionCache()
    blob = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    asked = {"kai.scheduler/topology": "racks"}
    labels = {QUEUE: "a", "priorityClassName": "train", "team": "vision"}

    cache.put_trainjob(trainjob(labels=labels, annotations={**blob, **asked}))

    assert cache.trainjob(KEY) == TrainJobSummary(
        "u", {QUEUE: "a", "priorityClassName": "train"}, asked, Key("", "torch")
    )
    assert len(cache.stores["trainjobs"]) == 1


def test_a_later_state_replaces_the_one_before() -> None:
    """Labels go as they came, and so does the whole."""
    cache = AdmissionCache()
    cache.put_trainjob(trainjob(labels={QUEUE: "a"}))
    cache.put_trainjob(trainjob("TrainingRuntime"))
    found = cache.trainjob(KEY)

    cache.drop_trainjob(KEY)
    cache.drop_trainjob(KEY)

    assert found == TrainJobSummary("u", {}, {}, Key("team", "torch"))
    assert cache.trainjob(KEY) is None


def test_queues_of_namespaces() -> None:
    """Only the label that a rule reads is kept."""
    cache = AdmissionCache()
    cache.put_namespace(Meta(name="team", labels={QUEUE: "a", "x": "y"}))
    before = cache.namespace_labels("team")
    cache.put_namespace(Meta(name="team", labels={"x": "y"}))

    assert before == {QUEUE: "a"}
    assert cache.namespace_labels("team") == {}
    assert cache.namespace_labels("nowhere") == {}

    cache.put_namespace(Meta(name="team", labels={QUEUE: "b"}))
    cache.drop_namespace("team")
    assert cache.namespace_labels("team") == {}


def test_a_trainjob_that_has_ended_is_finished() -> None:
    """Complete or Failed, and not only for a moment suspended."""
    for kind, status, finished in (
        ("Complete", "True", True),
        ("Failed", "True", True),
        ("Failed", "False", False),
        ("Suspended", "True", False),
    ):
        cache, job = AdmissionCache(), trainjob()
        conditions = (Condition(type=kind, status=status),)
        cache.put_trainjob(replace(job, status=TrainJobStatus(conditions=conditions)))
        found = cache.trainjob(KEY)
        assert found is not None
        assert found.is_finished is finished


def test_namespaces_are_found_by_their_queue() -> None:
    """A namespace counts if its label names the queue now."""
    cache = AdmissionCache()
    for name, queue in (("b", "q"), ("a", "q"), ("c", "other"), ("d", "q")):
        cache.put_namespace(Meta(name=name, labels={QUEUE: queue}))
    cache.put_namespace(Meta(name="d"))
    assert cache.namespaces_with_queue("q") == ["a", "b"]
    assert cache.namespaces_with_queue("none") == []
