"""Numbers for every request, and three lines of log for an outage of any length."""

import pytest
from structlog.testing import capture_logs

from tests.support.case import Case, ids
from trainer_kai.api.decode import DecodeError
from trainer_kai.api.meta import Meta
from trainer_kai.errors import FieldError
from trainer_kai.kube.process.context import ClientObserver, RequestInfo, request_info
from trainer_kai.kube.rest.request import Request
from trainer_kai.kube.rest.response import ApiError, ErrorDetails, Unavailable, WatchExpired
from trainer_kai.kube.watch import UnreadableObject
from trainer_kai.service.metrics import Metrics

REQUEST_INFOS = [
    Case(
        "an object's path is a get",
        ("GET", "/api/v1/namespaces/a/pods/p"),
        RequestInfo("get", "pods"),
    ),
    Case(
        "a list in a namespace", ("GET", "/api/v1/namespaces/a/pods"), RequestInfo("list", "pods")
    ),
    Case("a list of all", ("GET", "/api/v1/pods"), RequestInfo("list", "pods")),
    Case(
        "a namespace's path is a get",
        ("GET", "/api/v1/namespaces/a"),
        RequestInfo("get", "namespaces"),
    ),
    Case(
        "the path of all namespaces is a list",
        ("GET", "/api/v1/namespaces"),
        RequestInfo("list", "namespaces"),
    ),
    Case(
        "a binding is a create of a subresource",
        ("POST", "/api/v1/namespaces/a/pods/p/binding"),
        RequestInfo("create", "pods/binding"),
    ),
    Case(
        "an object of a group",
        ("PATCH", "/apis/scheduling.run.ai/v2/queues/q"),
        RequestInfo("patch", "queues"),
    ),
    Case("a replacement is an update", ("PUT", "/api/v1/nodes/n"), RequestInfo("update", "nodes")),
    Case("a deletion is a delete", ("DELETE", "/api/v1/nodes/n"), RequestInfo("delete", "nodes")),
    Case("discovery has no resource", ("GET", "/apis"), RequestInfo("get", "")),
]


@pytest.mark.parametrize("case", REQUEST_INFOS, ids=ids)
def test_requests_are_named_in_the_words_of_rbac(case: Case[tuple[str, str], RequestInfo]) -> None:
    """A path has few forms, and none of them lets a name of an object into a label."""
    assert request_info(Request(*case.given)) == case.want


def test_a_watch_is_a_verb_of_its_own() -> None:
    """It looks like a list but for a parameter."""
    assert request_info(Request("GET", "/api/v1/pods", (("watch", "true"),))).verb == "watch"


def test_answers_are_counted_by_their_class() -> None:
    """No answer is one too, and so is asking again."""
    metrics = Metrics()
    observed = ClientObserver(metrics)
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
    return Unavailable(ErrorDetails("GET /api/v1/pods", 0, "", message))


def test_an_outage_is_logged_when_it_begins_changes_and_ends() -> None:
    """What stays the same is not logged again, and the normal end of a stream is not logged."""
    observed = ClientObserver(Metrics())
    with capture_logs() as logged:
        observed.watch_ended("pods", "", None)
        for message in ("refused", "refused", "refused", "timed out"):
            observed.watch_ended("pods", message, _down(message))
        observed.watch_read("nodes", "ADDED")
        observed.watch_read("pods", "ADDED")
        observed.watch_read("pods", "ADDED")
        observed.watch_ended("pods", "refused", _down("refused"))

    assert [(line["event"], line.get("trouble")) for line in logged] == [
        ("watch interrupted", "refused"),
        ("watch interrupted", "timed out"),
        ("watch continues", None),
        ("watch interrupted", "refused"),
    ]


def test_restarts_are_counted_by_their_cause() -> None:
    """Lists that had to be read again are counted beside them."""
    metrics = Metrics()
    observed = ClientObserver(metrics)
    expired = WatchExpired(ErrorDetails("GET", 410, "Expired", "gone"))
    observed.watch_ended("pods", "", None)
    with capture_logs() as logged:
        observed.watch_ended("pods", "gone", expired)
        observed.watch_ended("events", "", expired)  # the normal course without bookmarks
    assert [(line["event"], line["log_level"]) for line in logged] == [
        ("watch lists again", "info")
    ]

    value = metrics.registry.get_sample_value
    restarts = [
        value("trainer_kai_watch_restarts_total", {"resource": "pods", "cause": cause})
        for cause in ("time", "WatchExpired")
    ]
    assert restarts == [1, 1]
    for resource in ("pods", "events"):
        assert value("trainer_kai_watch_relists_total", {"resource": resource}) == 1


def test_an_unreadable_object_is_named() -> None:
    """With the field that is not what it should be."""
    error = DecodeError(FieldError("spec.priority", "Expected `int`, got `str`"))
    with capture_logs() as logged:
        ClientObserver(Metrics()).watch_skipped(
            "queues", UnreadableObject(Meta(namespace="a", name="q"), error)
        )

    assert logged == [
        {
            "event": "object ignored",
            "log_level": "warning",
            "logger_name": "trainer_kai.kube.process.context",
            "resource": "queues",
            "key": "a/q",
            "error": "spec.priority: Expected `int`, got `str`",
        }
    ]
