"""Every request as it goes over the wire: path, query, body, content type, and if it may repeat."""

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from tests.support.case import Case, ids
from trainer_kai.api.meta import Key, PartialObject
from trainer_kai.api.resources import Resource
from trainer_kai.kube.rest.request import (
    DeleteOptions,
    ListTarget,
    Patch,
    PatchKind,
    Request,
    Selection,
    WriteOptions,
    create,
    delete,
    get,
    list_page,
    object_path,
    patch,
    post,
    replace,
    resource_path,
    watch,
)

PODS: Final = Resource("", "v1", "pods", "Pod", True, PartialObject)
NODES: Final = Resource("", "v1", "nodes", "Node", False, PartialObject)
GROUPS: Final = Resource(
    "scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup", True, PartialObject
)
QUEUES: Final = Resource("scheduling.run.ai", "v2", "queues", "Queue", False, PartialObject)
POD: Final = Key("a", "b")
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
WHOLE: Final = WriteOptions(field_manager="me", dry_run=True, force=True, strict=True)
WHOLE_QUERY: Final = "fieldManager=me&dryRun=All&force=true&fieldValidation=Strict"


class Sent(NamedTuple):
    line: str
    body: Any = None
    content_type: str = "application/json"
    accept: str = "application/json"
    repeatable: bool = True


def sent(request: Request) -> Sent:
    line = f"{request.method} {request.target}"
    body = None if request.body is None else json.loads(request.body)
    return Sent(line, body, request.content_type, request.accept, request.repeatable)


PATHS: list[Case[tuple[Resource[Any], str, str, str], str]] = [
    Case("the core group", (PODS, "a", "b", ""), "/api/v1/namespaces/a/pods/b"),
    Case(
        "a kind of another group has its path",
        (GROUPS, "a", "", ""),
        f"/apis/{GROUPS.api_version}/namespaces/a/podgroups",
    ),
    Case("all namespaces have one path", (PODS, "", "", ""), "/api/v1/pods"),
    Case("a kind without namespaces", (QUEUES, "", "q", ""), "/apis/scheduling.run.ai/v2/queues/q"),
    Case("a namespace too much", (NODES, "a", "n", ""), "/api/v1/nodes/n"),
    Case(
        "a subresource is the end of a path",
        (PODS, "a", "b", "status"),
        "/api/v1/namespaces/a/pods/b/status",
    ),
    Case(
        "odd names are quoted",
        (PODS, "a/../b", "c d/../e?x=y#z%", ""),
        "/api/v1/namespaces/a%2F..%2Fb/pods/c%20d%2F..%2Fe%3Fx%3Dy%23z%25",
    ),
    Case("a colon as RBAC has it", (NODES, "", "system:x", ""), "/api/v1/nodes/system%3Ax"),
]


@pytest.mark.parametrize("case", PATHS, ids=ids)
def test_a_path(case: Case[tuple[Resource[Any], str, str, str], str]) -> None:
    """Group, version, namespace, plural, name and part, each quoted."""
    assert resource_path(*case.given) == case.want


OPTIONS: Final = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
SOME: Final = ListTarget(PODS, "a", Selection("app=x,tier in (y)", "spec.nodeName=n"))
SOME_QUERY: Final = "labelSelector=app%3Dx%2Ctier+in+%28y%29&fieldSelector=spec.nodeName%3Dn"
JSON_PATCH: Final = [{"op": "test", "path": "/a", "value": 1}]

REQUESTS: list[Case[Request, Sent]] = [
    Case("get reads the object", get(PODS, POD), Sent("GET /api/v1/namespaces/a/pods/b")),
    Case(
        "get only metadata",
        get(PODS, POD, only_metadata=True),
        Sent("GET /api/v1/namespaces/a/pods/b", accept=METADATA),
    ),
    Case(
        "the first page",
        list_page(SOME, 500),
        Sent(f"GET /api/v1/namespaces/a/pods?{SOME_QUERY}&limit=500"),
    ),
    Case(
        "the next page, of all namespaces, only metadata",
        list_page(ListTarget(PODS, only_metadata=True), 7, "a+b/c="),
        Sent("GET /api/v1/pods?limit=7&continue=a%2Bb%2Fc%3D", accept=METADATA_LIST),
    ),
    Case(
        "watch states version and time",
        watch(SOME, "41", 300),
        Sent(
            f"GET /api/v1/namespaces/a/pods?{SOME_QUERY}"
            "&watch=true&allowWatchBookmarks=true&resourceVersion=41&timeoutSeconds=300"
        ),
    ),
    Case(
        "watch only metadata: its objects come one by one",
        watch(ListTarget(NODES, only_metadata=True), "1", 2),
        Sent(
            "GET /api/v1/nodes"
            "?watch=true&allowWatchBookmarks=true&resourceVersion=1&timeoutSeconds=2",
            accept=METADATA,
        ),
    ),
    Case(
        "create is not repeatable",
        create(PODS, "a", {"kind": "Pod"}),
        Sent("POST /api/v1/namespaces/a/pods", {"kind": "Pod"}, repeatable=False),
    ),
    Case(
        "create with everything",
        create(QUEUES, "", {}, WHOLE),
        Sent(f"POST /apis/scheduling.run.ai/v2/queues?{WHOLE_QUERY}", {}, repeatable=False),
    ),
    Case(
        "post is not repeatable", post("/x", {"a": 1}), Sent("POST /x", {"a": 1}, repeatable=False)
    ),
    Case("post a question", post("/x", {}, repeatable=True), Sent("POST /x", {})),
    Case(
        "replace a part",
        replace(PODS, POD, {"a": 1}, WriteOptions(subresource="status")),
        Sent("PUT /api/v1/namespaces/a/pods/b/status", {"a": 1}, repeatable=False),
    ),
    Case(
        "merge states its type",
        patch(PODS, POD, Patch(PatchKind.MERGE, {"a": None})),
        Sent("PATCH /api/v1/namespaces/a/pods/b", {"a": None}, "application/merge-patch+json"),
    ),
    Case(
        "operations may append, so they are not repeated",
        patch(PODS, POD, Patch(PatchKind.JSON, JSON_PATCH)),
        Sent(
            "PATCH /api/v1/namespaces/a/pods/b",
            JSON_PATCH,
            "application/json-patch+json",
            repeatable=False,
        ),
    ),
    Case(
        "apply with everything",
        patch(GROUPS, POD, Patch(PatchKind.APPLY, {"a": "ü"}), WHOLE),
        Sent(
            f"PATCH /apis/scheduling.run.ai/v2alpha2/namespaces/a/podgroups/b?{WHOLE_QUERY}",
            {"a": "ü"},
            "application/apply-patch+yaml",
        ),
    ),
    Case(
        "delete whatever has that name",
        delete(PODS, POD, DeleteOptions()),
        Sent("DELETE /api/v1/namespaces/a/pods/b", OPTIONS, repeatable=False),
    ),
    Case(
        "delete this very object",
        delete(PODS, POD, DeleteOptions(uid="u")),
        Sent("DELETE /api/v1/namespaces/a/pods/b", {**OPTIONS, "preconditions": {"uid": "u"}}),
    ),
    Case(
        "delete with everything",
        delete(NODES, Key("", "n"), DeleteOptions("u", "7", "Foreground", 0, True)),
        Sent(
            "DELETE /api/v1/nodes/n",
            {
                **OPTIONS,
                "propagationPolicy": "Foreground",
                "gracePeriodSeconds": 0,
                "dryRun": ["All"],
                "preconditions": {"uid": "u", "resourceVersion": "7"},
            },
        ),
    ),
]


@pytest.mark.parametrize("case", REQUESTS, ids=ids)
def test_a_request(case: Case[Request, Sent]) -> None:
    """Each builder makes the whole request, and says whether it may be sent twice."""
    assert sent(case.given) == case.want


BUILDERS: Final[dict[str, Callable[[Key], Request]]] = {
    "get": lambda key: get(PODS, key),
    "replace": lambda key: replace(PODS, key, {}),
    "patch": lambda key: patch(PODS, key, Patch(PatchKind.MERGE, {})),
    "delete": lambda key: delete(PODS, key, DeleteOptions(uid="u")),
}


@pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
def test_a_namespaced_object_needs_a_namespace(build: Callable[[Key], Request]) -> None:
    """The key is the caller's mistake, and is named."""
    with pytest.raises(ValueError, match=r"^pods are namespaced: the key of b needs a namespace$"):
        build(Key("", "b"))


def test_what_is_made_needs_a_namespace() -> None:
    """The API server would answer 404 or 405, which helps no caller."""
    with pytest.raises(
        ValueError, match=r"^podgroups\.scheduling\.run\.ai are namespaced: the new object"
    ):
        create(GROUPS, "", {})


@pytest.mark.parametrize("name", ["", ".", ".."])
@pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
def test_an_object_needs_a_name(build: Callable[[Key], Request], name: str) -> None:
    """Without one, a deletion would delete all the objects that there are."""
    with pytest.raises(ValueError, match="is not a name: an object of pods must be named"):
        build(Key("a", name))


def test_the_path_of_a_part() -> None:
    """The paths of actions are built as all others."""
    assert (
        object_path(PODS, Key("a", "b/c"), "binding") == "/api/v1/namespaces/a/pods/b%2Fc/binding"
    )


def test_a_request_is_shown_without_its_query() -> None:
    """Messages and logs have one short line."""
    assert str(list_page(SOME, 1)) == "GET /api/v1/namespaces/a/pods"
