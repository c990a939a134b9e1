"""The cached runtimes: the queue of each, its text for lint, and deletions."""

from collections.abc import Callable, Mapping

import pytest

from tests.support.case import Case, ids
from trainer_kai.api.decode import DecodeError, decode, encode
from trainer_kai.api.meta import Key
from webhook.cache.runtimes import MAX_TEXT_BYTES, RuntimeCache, RuntimeSummary, WatchedRuntime

KEY = Key("", "torch")


def watched(spec: object, namespace: str = "") -> WatchedRuntime:
    """Return a runtime as it is read off the wire, with nulls as Kubernetes writes them."""
    metadata = {
        "name": "torch",
        "namespace": namespace,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return decode(WatchedRuntime, encode({"metadata": metadata, "spec": spec}))


def runtime(policy: Mapping[str, object] | None) -> WatchedRuntime:
    return watched({"podGroupPolicy": policy})


# policies one after the other -> the queue that is known in the end
RUNTIMES: list[Case[list[Mapping[str, object] | None], str]] = [
    Case("without a policy there is no queue", [None], ""),
    Case("the policy of another scheduler names no queue", [{"volcano": {}}], ""),
    Case("KAI's without a queue", [{"kaiScheduler": {}}], ""),
    Case("the policy of KAI names its queue", [{"kaiScheduler": {"queue": "a"}}], "a"),
    Case("KAI's that was taken back", [{"kaiScheduler": {"queue": "a"}}, None], ""),
]


@pytest.mark.parametrize("case", RUNTIMES, ids=ids)
def test_queues_of_runtimes(case: Case[list[Mapping[str, object] | None], str]) -> None:
    """A runtime of the cluster and one of a namespace are two, though they have one name."""
    cache = RuntimeCache()
    for policy in case.given:
        cache.put(runtime(policy))

    assert cache.queue(KEY) == case.want
    assert cache.queue(Key("team", "torch")) == ""

    cache.drop(KEY)
    assert cache.queue(KEY) == ""


# what the watch tells while runtimes are listed -> the queue that is known in the end
MEANWHILE = [
    Case("what was listed counts if nothing changes", lambda _: None, "old"),
    Case("a newer one", lambda it: it.put(runtime({"kaiScheduler": {"queue": "n"}})), "n"),
    Case("that it is gone", lambda it: it.drop(KEY), ""),
]


@pytest.mark.parametrize("case", MEANWHILE, ids=ids)
def test_a_list_is_older_than_what_was_watched_since(
    case: Case[Callable[[RuntimeCache], None], str],
) -> None:
    """What was changed or deleted while it was read stays so."""
    cache = RuntimeCache()
    cache.put(runtime({"kaiScheduler": {"queue": "before"}}))
    cache.begin_list()

    case.given(cache)
    cache.put_listed(runtime({"kaiScheduler": {"queue": "old"}}))

    assert cache.queue(KEY) == case.want


LONG = {"template": {"metadata": {"annotations": {"a": "x" * MAX_TEXT_BYTES}}}}
TEXTS: list[Case[list[WatchedRuntime], int | None]] = [
    Case("one runtime takes one text", [watched({"mlPolicy": {"numNodes": 3, "torch": None}})], 3),
    Case(
        "a later one",
        [watched({"mlPolicy": {"numNodes": 3}}), watched({"mlPolicy": {"numNodes": 4}})],
        4,
    ),
    Case("one that is too long", [watched({"mlPolicy": {"numNodes": 3}}), watched(LONG)], None),
    Case("one that lint cannot read", [watched({"mlPolicy": {"numNodes": []}})], None),
]


@pytest.mark.parametrize("case", TEXTS, ids=ids)
def test_runtimes_are_read_when_they_are_named(
    case: Case[list[WatchedRuntime], int | None],
) -> None:
    """The last text counts, and null fields are as good as absent ones."""
    cache = RuntimeCache()
    for runtime in case.given:
        cache.put(runtime)

    found = cache.whole(KEY)
    cache.drop(KEY)

    policy = found.spec.ml_policy if found else None
    assert (policy.num_nodes if policy else None) == case.want
    assert cache.whole(KEY) is None


def test_a_runtime_that_is_too_long_for_lint_keeps_its_summary() -> None:
    """Its queue is written on JobSets, whatever its size."""
    cache = RuntimeCache()
    cache.put(watched({**LONG, "podGroupPolicy": {"kaiScheduler": {"queue": "a"}}}))

    summary = cache.summary(KEY)

    assert cache.whole(KEY) is None
    assert summary is not None
    assert summary.queue == cache.queue(KEY) == "a"


def test_a_runtime_without_a_spec_names_nothing() -> None:
    """A null is as good as no spec."""
    assert watched(None).summary == RuntimeSummary()


def test_a_spec_that_no_rule_can_read_is_reported() -> None:
    """The watch counts and logs what cannot be decoded."""
    with pytest.raises(DecodeError, match=r"spec: template: must be an object"):
        watched({"template": 3})
