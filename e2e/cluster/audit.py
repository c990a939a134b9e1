"""Who wrote what, and what ServiceAccounts asked for: the API server's audit log as a counter."""

import asyncio
import json
import re
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from e2e.cluster.api import Api
from e2e.cluster.patience import patience

_PATIENCE_S: Final = 10.0


class Request(NamedTuple):
    """One request as the API server answered it, or the beginning of a watch."""

    user: str
    verb: str
    group: str
    resource: str  # plural, with its subresource: `pods`, `pods/binding`
    namespace: str
    name: str
    status: int
    failed_open: bool = False


class Write(NamedTuple):
    """One write as the API server answered it."""

    user: str
    verb: str
    resource: str  # plural, with its subresource: `pods`, `pods/binding`
    namespace: str
    name: str
    status: int
    failed_open: bool = False  # a webhook did not answer, and its failurePolicy is Ignore


class AuditLog:
    """The writes of one cluster. Take a `mark`, act, and read what was written since."""

    def __init__(self, file: Path, api: Api) -> None:
        self._file = file
        self._api = api

    async def mark(self) -> int:
        """Return a place in the log behind every write answered so far."""
        return await self._settle()

    async def writes(self, since: int = 0) -> list[Write]:
        """Return every write answered since a mark, those of this class left out."""
        await self._settle()
        with self._file.open("rb") as log:
            log.seek(since)
            return list(read_writes(log.read().splitlines()))

    async def requests(self, since: int = 0) -> list[Request]:
        """Return all that ServiceAccounts asked for since a mark, and the writes of all others."""
        await self._settle()
        with self._file.open("rb") as log:
            log.seek(since)
            return list(read_requests(log.read().splitlines()))

    async def count(self, since: int = 0) -> Counter[tuple[str, str]]:
        """Count the accepted writes since a mark by user and resource."""
        writes = await self.writes(since)
        return Counter((write.user, write.resource) for write in writes if write.status < 400)

    async def _settle(self) -> int:
        """Write nothing under a new name and wait until the log says so: all before it is there.

        Return where that line ends; the file may end in the middle of a later one.
        """
        name = f"{_SETTLING}{uuid.uuid4()}"
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        path = "/api/v1/namespaces/default/configmaps"
        start = self._file.stat().st_size if self._file.exists() else 0
        await self._api.request("POST", path, body, query={"dryRun": "All"})
        line = re.compile(name.encode() + rb".*\n")
        async with patience(_PATIENCE_S):
            while (found := line.search(self._read_from(start))) is None:
                await asyncio.sleep(0.01)
        return start + found.end()

    def _read_from(self, offset: int) -> bytes:
        with self._file.open("rb") as log:
            log.seek(offset)
            return log.read()


def read_writes(lines: Sequence[bytes]) -> Iterator[Write]:
    """Read the writes among audit lines; leases are none, for they are written all the time."""
    for asked in read_requests(lines):
        if asked.verb not in _READS and asked.resource != "leases":
            at = asked._asdict()
            del at["group"]
            yield Write(**at)


def read_requests(lines: Sequence[bytes]) -> Iterator[Request]:
    """Read audit lines; the last may be half-written and is then left for the next time."""
    for number, line in enumerate(lines, start=1):
        try:
            event = json.loads(line)
        except ValueError:
            if number < len(lines):
                raise
            return
        target = event.get("objectRef", {})
        name = target.get("name", "")
        if name.startswith(_SETTLING) or "dryRun=All" in event["requestURI"]:
            continue
        parts = [target.get("resource", ""), target.get("subresource", "")]
        yield Request(
            user=event["user"]["username"],
            verb=event["verb"],
            group=target.get("apiGroup", ""),
            resource="/".join(part for part in parts if part),
            namespace=target.get("namespace", ""),
            name=name,
            status=event.get("responseStatus", {}).get("code", 0),
            failed_open=any(it.startswith("failed-open.") for it in event.get("annotations", ())),
        )


_READS: Final = ("get", "list", "watch")
_SETTLING: Final = "audit-settles-"
