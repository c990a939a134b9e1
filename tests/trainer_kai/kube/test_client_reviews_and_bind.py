"""What is done by posting: to which path, with which body, and whether it may be done twice."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import pytest

from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from tests.support.fakes.recording_transport import RecordingTransport, json_answer
from trainer_kai.api.meta import Key
from trainer_kai.kube.auth.rest_config import RestConfig, StaticToken
from trainer_kai.kube.client import (
    AccessDecision,
    AccessRequest,
    Client,
    NoRequestObserver,
    bind,
    review_access,
)
from trainer_kai.kube.rest.response import ApiResponse, Garbled

POD: Final = Key("a", "b")


def client(*answers: ApiResponse) -> tuple[Client, RecordingTransport]:
    transcript = RecordingTransport(*answers)
    rest_config = RestConfig("https://h", StaticToken(""))
    return Client(rest_config, transcript, VirtualClock(), NoRequestObserver()), transcript


class SentRequest(NamedTuple):
    path: str
    body: dict[str, Any]
    repeatable: bool = False


BINDING: Final = {"apiVersion": "v1", "kind": "Binding"}
NODE: Final = {"apiVersion": "v1", "kind": "Node", "name": "n"}
ACTIONS: list[Case[Callable[[Client], Awaitable[object]], SentRequest]] = [
    Case(
        "bind this very pod, and write something onto it",
        lambda it: bind(it, POD, "n", uid="u", annotations={"k": "v"}),
        SentRequest(
            "/api/v1/namespaces/a/pods/b/binding",
            {
                **BINDING,
                "metadata": {"name": "b", "namespace": "a", "annotations": {"k": "v"}, "uid": "u"},
                "target": NODE,
            },
        ),
    ),
    Case(
        "bind a pod as it was in one version",
        lambda it: bind(it, POD, "n", uid="u", version="7"),
        SentRequest(
            "/api/v1/namespaces/a/pods/b/binding",
            {
                **BINDING,
                "metadata": {
                    "name": "b",
                    "namespace": "a",
                    "annotations": {},
                    "uid": "u",
                    "resourceVersion": "7",
                },
                "target": NODE,
            },
        ),
    ),
]


@pytest.mark.parametrize("case", ACTIONS, ids=ids)
async def test_an_action(case: Case[Callable[[Client], Awaitable[object]], SentRequest]) -> None:
    """It is posted once; that it was accepted is all there is to know."""
    the, transcript = client(ApiResponse(201, b"a Status that nobody reads"))

    assert await case.given(the) is None

    (asked,) = transcript.requests
    done = SentRequest(asked.path, transcript.bodies[0], asked.repeatable)
    assert (asked.method, done) == ("POST", case.want)


@pytest.mark.parametrize("pod", [Key("a", ""), Key("", "b"), Key("a", "..")])
async def test_a_pod_must_be_named(pod: Key) -> None:
    """Nothing is sent to a path that leads elsewhere."""
    the, transcript = client(ApiResponse(201, b""))
    with pytest.raises(ValueError, match=r"is not a name|needs a namespace"):
        await bind(the, pod, "n", uid="u")

    assert transcript.requests == []


ASKED: Final = AccessRequest("create", "g", "r", "n", "a", "u", ("x", "y"))
DECISIONS: list[Case[object, AccessDecision]] = [
    Case("yes", {"status": {"allowed": True, "reason": "RBAC"}}, AccessDecision(True, "RBAC")),
    Case("no", {"status": {"allowed": False}}, AccessDecision()),
    Case("null is nothing", {"status": {"allowed": True, "reason": None}}, AccessDecision(True)),
]


@pytest.mark.parametrize("case", DECISIONS, ids=ids)
async def test_a_question(case: Case[object, AccessDecision]) -> None:
    """All of it is asked, and it may be asked twice."""
    the, transcript = client(json_answer(case.given, 201))

    assert await review_access(the, ASKED) == case.want
    (asked,), (body,) = transcript.requests, transcript.bodies
    assert (asked.path, asked.repeatable) == (
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        True,
    )
    assert body == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "resourceAttributes": {
                "verb": "create",
                "group": "g",
                "resource": "r",
                "name": "n",
                "namespace": "a",
            },
            "user": "u",
            "groups": ["x", "y"],
        },
    }


@pytest.mark.parametrize("answer", [b"{}", b"hello", b'{"status":{"allowed":"yes"}}'])
async def test_an_answer_that_cannot_be_read(answer: bytes) -> None:
    """It is an error of ours, not one of a library."""
    the, _ = client(ApiResponse(201, answer))
    with pytest.raises(Garbled):
        await review_access(the, ASKED)
