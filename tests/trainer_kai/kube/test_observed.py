"""Numbers for every request, and three lines of log for an outage of any length."""

import pytest
from structlog.testing import capture_logs

from tests.support.case import Case, ids
from trainer_kai.api.decode import DecodeError
from trainer_kai.api.meta import Meta
from trainer_kai.errors import FieldError
from trainer_kai.kube.errors import ApiError, Refusal, Unavailable, WatchExpired
from trainer_kai.kube.observed import About, Observed, about
from trainer_kai.kube.reading import Unreadable
from trainer_kai.kube.request import Request
from trainer_kai.metrics import Metrics

ABOUT = [
    Case("an object", ("GET", "/api/v1/namespaces/a/pods/p"), About("get", "pods")),
    Case("a list in a namespace", ("GET", "/api/v1/namespaces/a/pods"), About("list", "pods")),
    Case("a list of all", ("GET", "/api/v1/pods"), About("list", "pods")),
    Case("a namespace", ("GET", "/api/v1/namespaces/a"), About("get", "namespaces")),
    Case("all namespaces", ("GET", "/api/v1/namespaces"), About("list", "namespaces")),
    Case(
        "a binding",
        ("POST", "/api/v1/namespaces/a/pods/p/binding"),
        About("create", "pods/binding"),
    ),
    Case(
        "an object of a group",
        ("PATCH", "/apis/scheduling.run.ai/v2/queues/q"),
        About("patch", "queues"),
    ),
    Case("a replacement", ("PUT", "/api/v1/nodes/n"), About("update", "nodes")),
    Case("a deletion", ("DELETE", "/api/v1/nodes/n"), About("delete", "nodes")),
    Case("discovery", ("GET", "/apis"), About("get", "")),
]


@pytest.mark.parametrize("case", ABOUT, ids=ids)
def test_requests_are_named_in_the_words_of_rbac(case: Case[tuple[str, str], About]) -> None:
    """A path has few forms, and none of them lets a name of an object into a label."""
    assert about(Request(*case.given)) == case.want


def test_a_watch_is_a_verb_of_its_own() -> None:
    """It looks like a list but for a parameter."""
    assert about(Request("GET", "/api/v1/pods", (("watch", "true"),))).verb == "watch"


def test_answers_are_counted_by_their_class() -> None:
    """No answer is one too, and so is asking again."""
    metrics = Metrics()
    observed = Observed(metrics)
    asked = Request("GET", "/api/v1/pods")
    for status in (200, 201, 404, 0):
        observed.answered(asked, status, 0.1)
    observed.repeated(asked)

    def count(status: str) -> float | None:
        labels = {"verb": "list", "resource": "pods", "status": status}
        return metrics.registry.get_sample_value("trainer_kai_api_requests_total", labels)

    assert [count(status) for status in ("2xx", "4xx", "none")] == [2, 1, 1]
    labels = {"verb": "list", "resource": "pods"}
    value = metrics.registry.get_sample_value
    assert value("trainer_kai_api_request_seconds_count", labels) == 4
    assert value("trainer_kai_api_retries_total", labels) == 1


def _down(message: str) -> ApiError:
    return Unavailable(Refusal("GET /api/v1/pods", 0, "", message))


def test_an_outage_is_logged_when_it_begins_changes_and_ends() -> None:
    """What stays the same is not said again, and having had one's time is not said at all."""
    observed = Observed(Metrics())
    with capture_logs() as told:
        observed.watch_ended("pods", "", None)
        for message in ("refused", "refused", "refused", "timed out"):
            observed.watch_ended("pods", message, _down(message))
        observed.watch_read("nodes", "ADDED")
        observed.watch_read("pods", "ADDED")
        observed.watch_read("pods", "ADDED")
        observed.watch_ended("pods", "refused", _down("refused"))

    assert [(line["event"], line.get("trouble")) for line in told] == [
        ("watch interrupted", "refused"),
        ("watch interrupted", "timed out"),
        ("watch goes on", None),
        ("watch interrupted", "refused"),
    ]


def test_restarts_are_counted_by_their_cause() -> None:
    """Lists that had to be read again are counted beside them."""
    metrics = Metrics()
    observed = Observed(metrics)
    observed.watch_ended("pods", "", None)
    with capture_logs() as told:
        observed.watch_ended("pods", "gone", WatchExpired(Refusal("GET", 410, "Expired", "gone")))
    assert [(line["event"], line["log_level"]) for line in told] == [("watch lists again", "info")]

    value = metrics.registry.get_sample_value
    restarts = [
        value("trainer_kai_watch_restarts_total", {"resource": "pods", "cause": cause})
        for cause in ("time", "WatchExpired")
    ]
    assert restarts == [1, 1]
    assert value("trainer_kai_watch_relists_total", {"resource": "pods"}) == 1


def test_an_unreadable_object_is_named() -> None:
    """With the field that is not what it should be."""
    error = DecodeError(FieldError("spec.priority", "Expected `int`, got `str`"))
    with capture_logs() as told:
        Observed(Metrics()).watch_skipped(
            "queues", Unreadable(Meta(namespace="a", name="q"), error)
        )

    assert told == [
        {
            "event": "object left out",
            "log_level": "warning",
            "logger_name": "trainer_kai.kube.observed",
            "resource": "queues",
            "key": "a/q",
            "error": "spec.priority: Expected `int`, got `str`",
        }
    ]
