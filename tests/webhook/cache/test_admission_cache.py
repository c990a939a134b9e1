"""What is kept of objects, and that what is gone is forgotten."""

import json
from collections.abc import Callable, Mapping

import pytest

from tests.support.case import Case, ids
from trainer_kai.api.decode import decode
from trainer_kai.api.meta import Key, Meta
from webhook.cache.admission_cache import AdmissionCache
from webhook.cache.runtimes import SlimRuntime
from webhook.cache.trainjobs import SlimTrainJob, TrainJobSummary

QUEUE = "kai.scheduler/queue"
KEY = Key("team", "job")


def trainjob(kind: str | None = None, **metadata: object) -> SlimTrainJob:
    """Return one as it is read off the wire."""
    ref = {"name": "torch"} | ({"kind": kind} if kind else {})
    meta = {"namespace": "team", "name": "job", "uid": "u", **metadata}
    return decode(
        SlimTrainJob, json.dumps({"metadata": meta, "spec": {"runtimeRef": ref}}).encode()
    )


def runtime(namespace: str, policy: Mapping[str, object] | None) -> SlimRuntime:
    """Return one as it is read off the wire."""
    whole = {
        "metadata": {"namespace": namespace, "name": "torch"},
        "spec": {"podGroupPolicy": policy},
    }
    return decode(SlimRuntime, json.dumps(whole).encode())


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


# policies one after the other -> the queue that is known in the end
RUNTIMES: list[Case[list[Mapping[str, object] | None], str]] = [
    Case("no policy", [None], ""),
    Case("another scheduler's", [{"volcano": {}}], ""),
    Case("KAI's without a queue", [{"kaiScheduler": {}}], ""),
    Case("KAI's", [{"kaiScheduler": {"queue": "a"}}], "a"),
    Case("KAI's that was taken back", [{"kaiScheduler": {"queue": "a"}}, None], ""),
]


@pytest.mark.parametrize("case", RUNTIMES, ids=ids)
def test_queues_of_runtimes(case: Case[list[Mapping[str, object] | None], str]) -> None:
    """A runtime of the cluster and one of a namespace are two, though they have one name."""
    cache = AdmissionCache()
    for policy in case.given:
        cache.put_runtime(runtime("", policy))

    assert cache.runtime_queue(Key("", "torch")) == case.want
    assert cache.runtime_queue(Key("team", "torch")) == ""

    cache.drop_runtime(Key("", "torch"))
    assert cache.runtime_queue(Key("", "torch")) == ""


# what the watch tells while runtimes are listed -> the queue that is known in the end
MEANWHILE = [
    Case("nothing", lambda _: None, "old"),
    Case(
        "a newer one", lambda it: it.put_runtime(runtime("", {"kaiScheduler": {"queue": "n"}})), "n"
    ),
    Case("that it is gone", lambda it: it.drop_runtime(Key("", "torch")), ""),
]


@pytest.mark.parametrize("case", MEANWHILE, ids=ids)
def test_a_list_is_older_than_what_was_watched_since(
    case: Case[Callable[[AdmissionCache], None], str],
) -> None:
    """What was changed or deleted while it was read stays so."""
    cache = AdmissionCache()
    cache.put_runtime(runtime("", {"kaiScheduler": {"queue": "before"}}))
    cache.begin_runtime_list()

    case.given(cache)
    cache.put_listed_runtime(runtime("", {"kaiScheduler": {"queue": "old"}}))

    assert cache.runtime_queue(Key("", "torch")) == case.want


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
