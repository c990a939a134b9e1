"""What is done by posting: to which path, with which body, and whether it may be done twice."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import pytest

from tests.support.apiserver import Transcript, told
from tests.support.case import Case, ids
from tests.support.clock import VirtualClock
from trainer_kai.api.meta import Key
from trainer_kai.kube.access import Access, Token
from trainer_kai.kube.actions import (
    Question,
    ServiceToken,
    Verdict,
    bind,
    evict,
    is_allowed,
    request_token,
)
from trainer_kai.kube.answer import Answer
from trainer_kai.kube.client import Client, Unobserved
from trainer_kai.kube.errors import Garbled, Throttled

POD: Final = Key("a", "b")


def client(*answers: Answer) -> tuple[Client, Transcript]:
    """Return a client, and what it asks."""
    transcript = Transcript(*answers)
    access = Access("https://h", Token(""))
    return Client(access, transcript, VirtualClock(), Unobserved()), transcript


class Done(NamedTuple):
    """A request that was made."""

    path: str
    body: dict[str, Any]
    repeatable: bool = False
    waits_when_throttled: bool = True


BINDING: Final = {"apiVersion": "v1", "kind": "Binding"}
NODE: Final = {"apiVersion": "v1", "kind": "Node", "name": "n"}
EVICTION: Final = {
    "apiVersion": "policy/v1",
    "kind": "Eviction",
    "metadata": {"name": "b", "namespace": "a"},
}

ACTIONS: list[Case[Callable[[Client], Awaitable[object]], Done]] = [
    Case(
        "bind this very pod, and write something onto it",
        lambda it: bind(it, POD, "n", uid="u", annotations={"k": "v"}),
        Done(
            "/api/v1/namespaces/a/pods/b/binding",
            {
                **BINDING,
                "metadata": {"name": "b", "namespace": "a", "annotations": {"k": "v"}, "uid": "u"},
                "target": NODE,
            },
        ),
    ),
    Case(
        "evict: a budget that says no is an answer",
        lambda it: evict(it, POD),
        Done(
            "/api/v1/namespaces/a/pods/b/eviction",
            {**EVICTION, "deleteOptions": {}},
            waits_when_throttled=False,
        ),
    ),
    Case(
        "evict this very pod at once",
        lambda it: evict(it, POD, uid="u", grace_s=0),
        Done(
            "/api/v1/namespaces/a/pods/b/eviction",
            {
                **EVICTION,
                "deleteOptions": {"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}},
            },
            waits_when_throttled=False,
        ),
    ),
]


@pytest.mark.parametrize("case", ACTIONS, ids=ids)
async def test_an_action(case: Case[Callable[[Client], Awaitable[object]], Done]) -> None:
    """It is posted once; that it was accepted is all there is to know."""
    the, transcript = client(Answer(201, b"a Status that nobody reads"))

    assert await case.given(the) is None

    (asked,) = transcript.asked
    done = Done(asked.path, transcript.bodies[0], asked.repeatable, asked.waits_when_throttled)
    assert (asked.method, done) == ("POST", case.want)


async def test_a_budget_that_says_no() -> None:
    """The caller decides what to do instead."""
    the, transcript = client(Answer(429, b"{}", "10"))
    with pytest.raises(Throttled):
        await evict(the, POD)

    assert len(transcript.asked) == 1


@pytest.mark.parametrize("pod", [Key("a", ""), Key("", "b"), Key("a", "..")])
@pytest.mark.parametrize(
    "act", [lambda it, pod: bind(it, pod, "n", uid="u"), evict], ids=["bind", "evict"]
)
async def test_a_pod_must_be_named(act: Callable[[Client, Key], Awaitable[None]], pod: Key) -> None:
    """Nothing is sent to a path that leads elsewhere."""
    the, transcript = client(Answer(201, b""))
    with pytest.raises(ValueError, match=r"is no name|needs a namespace"):
        await act(the, pod)

    assert transcript.asked == []


ASKED: Final = Question("create", "g", "r", "n", "a", "u", ("x", "y"))
VERDICTS: list[Case[object, Verdict]] = [
    Case("yes", {"status": {"allowed": True, "reason": "RBAC"}}, Verdict(True, "RBAC")),
    Case("no", {"status": {"allowed": False}}, Verdict()),
    Case("null is nothing", {"status": {"allowed": True, "reason": None}}, Verdict(True)),
]


@pytest.mark.parametrize("case", VERDICTS, ids=ids)
async def test_a_question(case: Case[object, Verdict]) -> None:
    """All of it is asked, and it may be asked twice."""
    the, transcript = client(told(case.given, 201))

    assert await is_allowed(the, ASKED) == case.want
    (asked,), (body,) = transcript.asked, transcript.bodies
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


async def test_a_token_for_an_account() -> None:
    """For whom it is good, and how long."""
    status = {"token": "t", "expirationTimestamp": "2026-01-01T00:00:00Z"}
    the, transcript = client(told({"status": status}, 201))

    token = await request_token(the, POD, audiences=("x",), good_for_s=600)

    assert token == ServiceToken("t", "2026-01-01T00:00:00Z")
    (asked,), (body,) = transcript.asked, transcript.bodies
    assert (asked.path, asked.repeatable) == ("/api/v1/namespaces/a/serviceaccounts/b/token", True)
    assert body["spec"] == {"audiences": ["x"], "expirationSeconds": 600}
    assert (body["apiVersion"], body["kind"]) == ("authentication.k8s.io/v1", "TokenRequest")


@pytest.mark.parametrize("answer", [b"{}", b"hello", b'{"status":{"allowed":"yes","token":7}}'])
async def test_an_answer_that_cannot_be_read(answer: bytes) -> None:
    """It is an error of ours, not one of a library."""
    the, _ = client(Answer(201, answer))
    with pytest.raises(Garbled):
        await is_allowed(the, ASKED)
    with pytest.raises(Garbled):
        await request_token(the, POD)
