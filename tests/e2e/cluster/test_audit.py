"""The audit log as a counter of writes."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import pytest

from e2e.cluster.api import Api
from e2e.cluster.audit import AuditLog, Request, Write, read_requests, read_writes
from tests.support.case import Case, ids


def line(
    target: Mapping[str, str],
    *,
    user: str = "trainer",
    uri: str = "/apis",
    status: int = 201,
    verb: str = "create",
    annotations: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """Return one line as the API server writes it."""
    event = {
        "requestURI": uri,
        "verb": verb,
        "user": {"username": user},
        "objectRef": target,
        "responseStatus": {"metadata": {}, "code": status},
        "annotations": {**annotations},
    }
    return json.dumps(event).encode()


POD = {"resource": "pods", "namespace": "ns", "name": "pod"}
MADE = Write("trainer", "create", "pods", "ns", "pod", 201)

READINGS = [
    Case("a write is who, what, where and how it ended", [line(POD)], [MADE]),
    Case(
        "it failed open where a webhook did not answer",
        [line(POD, annotations={"failed-open.validating.webhook.admission.k8s.io/round_0": "it"})],
        [MADE._replace(failed_open=True)],
    ),
    Case(
        "a subresource is told from its object",
        [line(POD | {"subresource": "binding"})],
        [MADE._replace(resource="pods/binding")],
    ),
    Case(
        "a refused write is one too",
        [line(POD, status=409)],
        [MADE._replace(status=409)],
    ),
    Case("a read writes nothing", [line(POD, verb="watch")], []),
    Case("a lease is no write", [line({"resource": "leases", "name": "leader"})], []),
    Case("a dry run writes nothing", [line(POD, uri="/x?a=b&dryRun=All")], []),
    Case("the log's own marks are left out", [line({"name": "audit-settles-1"})], []),
    Case("half a line at the end is for the next time", [line(POD), line(POD)[:-9]], [MADE]),
]


@pytest.mark.parametrize("case", READINGS, ids=ids)
def test_read_writes(case: Case[list[bytes], list[Write]]) -> None:
    """The lines of the log are writes, in their order."""
    assert list(read_writes(case.given)) == case.want


def test_read_requests() -> None:
    """Reads and leases are there too, each with its group."""
    lease = {"apiGroup": "coordination.k8s.io", "resource": "leases", "name": "leader"}

    assert list(read_requests([line(POD, verb="watch", status=403), line(lease)])) == [
        Request("trainer", "watch", "", "pods", "ns", "pod", 403),
        Request("trainer", "create", "coordination.k8s.io", "leases", "", "leader", 201),
    ]


def test_a_broken_line_in_the_middle_is_an_error() -> None:
    """Only what is still being written may be torn; anything else would hide writes."""
    with pytest.raises(ValueError, match=r"Unterminated string|Expecting"):
        list(read_writes([line(POD)[:-9], line(POD)]))


class LoggingApi:
    """An API server that logs each write in two goes, the second a little later."""

    def __init__(self, file: Path) -> None:
        self._file = file

    async def request(self, _method: str, _path: str, body: Any, *, query: Any) -> None:
        """Accept a ConfigMap."""
        uri = "/configmaps?" + "&".join(f"{key}={value}" for key, value in query.items())
        logged = line({"name": body["metadata"]["name"]}, user="admin", uri=uri) + b"\n"
        self.log(logged[:-20])
        asyncio.get_running_loop().call_later(0.03, self.log, logged[-20:])

    def as_api(self) -> Api:
        """Return the same object under the type that its users ask for."""
        return cast("Api", self)

    def log(self, some: bytes) -> None:
        """Write something to the log."""
        with self._file.open("ab") as file:
            file.write(some)


@pytest.fixture
def server(tmp_path: Path) -> LoggingApi:
    """Return a server that logged one write before the test."""
    server = LoggingApi(tmp_path / "audit.jsonl")
    server.log(line(POD, user="before") + b"\n")
    return server


async def test_writes_since_a_mark_are_all_the_writes_since(
    server: LoggingApi, tmp_path: Path
) -> None:
    """A mark lies between two lines, also when the log is caught in the middle of one."""
    log = AuditLog(tmp_path / "audit.jsonl", server.as_api())

    mark = await log.mark()
    server.log(line(POD) + b"\n")

    assert await log.writes(mark) == [MADE]
    assert [write.user for write in await log.writes()] == ["before", "trainer"]


async def test_only_accepted_writes_are_counted(server: LoggingApi, tmp_path: Path) -> None:
    """They are counted by user and resource; refused ones are not."""
    log = AuditLog(tmp_path / "audit.jsonl", server.as_api())

    mark = await log.mark()
    for status in (200, 201, 400, 409):
        server.log(line(POD, status=status) + b"\n")

    assert await log.count(mark) == {("trainer", "pods"): 2}
