"""Bodies of reviews: what is read of them, and the reason for malformed ones."""

import base64
import json

import pytest

from tests.support.case import Case, ids
from tests.webhook.objects import JOBSET, jobset, recorded, review
from webhook.admission.review import (
    AdmissionDenial,
    AdmissionRequest,
    AdmissionResponse,
    Malformed,
    encode_response,
    read_review,
)

GOOD = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u"}}


def body(**parts: object) -> bytes:
    return json.dumps({**GOOD, **parts}).encode()


# a body -> a piece of what is said about it
MALFORMED = [
    Case("an empty body is refused", b"", "not an AdmissionReview: is not valid JSON"),
    Case(
        "a body that is no JSON is refused", b"<html>", "not an AdmissionReview: is not valid JSON"
    ),
    Case("half of it", review(jobset(), JOBSET)[:-9], "not an AdmissionReview: is not valid JSON"),
    Case("more than it", review(jobset(), JOBSET) + b"{}", "trailing characters"),
    Case("a list is refused", b"[]", "must be an object, not a list"),
    Case("NaN is refused", body(request={"uid": "u", "x": float("nan")}), "is not valid JSON"),
    Case("bytes that are no text", b'{"kind": "\xff"}', "is not valid JSON"),
    Case(
        "another version is refused",
        body(apiVersion="admission.k8s.io/v1beta1"),
        "are 'admission.k8s.io/v1beta1' 'AdmissionReview', and must be 'admission.k8s.io/v1' ",
    ),
    Case(
        "another kind is refused",
        body(kind="Status"),
        "are 'admission.k8s.io/v1' 'Status', and must be",
    ),
    Case("a review without request is refused", body(request=None), "request: must not be empty"),
    Case("a request without uid is refused", body(request={}), "request.uid: is missing"),
    Case("an empty uid", body(request={"uid": ""}), "request.uid: must not be empty"),
    Case("a uid that is a number", body(request={"uid": 7}), "request.uid: must be a string"),
    Case(
        "deeper than any parser reads",
        b'{"request":{"uid":"u","object":' + b"[" * 100_000,
        "not an AdmissionReview: is not valid JSON",
    ),
]


@pytest.mark.parametrize("case", MALFORMED, ids=ids)
def test_what_is_no_review_gets_the_reason(case: Case[bytes, str]) -> None:
    """In one line, of bounded length."""
    found = read_review(case.given)

    assert isinstance(found, Malformed)
    assert case.want in found.message
    assert found.message.isprintable()
    assert len(found.message) <= 2048


def test_a_real_review_is_read() -> None:
    found = read_review(recorded("jobset-create"))

    assert isinstance(found, AdmissionRequest)
    assert (found.operation, found.namespace, found.kind.kind) == ("CREATE", "team", "JobSet")
    assert json.loads(bytes(found.object))["metadata"]["name"] == "deepspeed"
    assert bytes(found.old_object) == b"null"


# an answer -> the response
ANSWERS = [
    Case("an allowed request has no status", AdmissionResponse(), {"uid": "u-1", "allowed": True}),
    Case(
        "with warnings, each once",
        AdmissionResponse(warnings=("a", "b\nc\x1b[31m", "a")),
        {"uid": "u-1", "allowed": True, "warnings": ["a", "b c [31m"]},
    ),
    Case(
        "with a long one, cut between words",
        AdmissionResponse(warnings=("seven_7 " * 40,)),
        {"uid": "u-1", "allowed": True, "warnings": ["seven_7 " * 31 + "…"]},
    ),
    Case(
        "with a very long one",
        AdmissionResponse(warnings=("é" * 300,)),
        {"uid": "u-1", "allowed": True, "warnings": ["é" * 254 + " …"]},
    ),
    Case(
        "with a very long word after a short one",
        AdmissionResponse(warnings=("ab " + "é" * 300,)),
        {"uid": "u-1", "allowed": True, "warnings": ["ab " + "é" * 251 + " …"]},
    ),
    Case(
        "a refused request has its code and message",
        AdmissionResponse(denial=AdmissionDenial(422, "two\nlines")),
        {
            "uid": "u-1",
            "allowed": False,
            "status": {"code": 422, "message": "two lines", "reason": "Invalid"},
        },
    ),
]


@pytest.mark.parametrize("case", ANSWERS, ids=ids)
def test_answers(case: Case[AdmissionResponse, dict[str, object]]) -> None:
    """The uid comes back, and nothing is said that there is not."""
    assert json.loads(encode_response("u-1", case.given)) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": case.want,
    }


def test_a_patch_travels_in_base64() -> None:
    operations = ({"op": "remove", "path": "/a"},)
    response = json.loads(encode_response("u-1", AdmissionResponse(operations)))["response"]

    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"])) == list(operations)


def test_there_are_never_too_many_warnings() -> None:
    """The API server has room for 4 KiB of them."""
    many = AdmissionResponse(warnings=tuple(f"{i}" * 999 for i in range(99)))

    warnings = json.loads(encode_response("u-1", many))["response"]["warnings"]

    assert sum(map(len, warnings)) <= 4096
