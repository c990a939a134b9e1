"""`trainer-kai queue list`: quota, usage, requests and access of all queues.

The scheduler writes the usage into the status of the Queues. PodGroups are read as well: a queue
that they use and that does not exist has no status.
"""

import argparse
import asyncio
import json
import sys
from typing import Final, NamedTuple, TypeVar

from trainer_kai.api.cluster_kinds import Node
from trainer_kai.api.kai_kinds import PodGroup, Queue
from trainer_kai.api.meta import Object
from trainer_kai.api.resources import NODES, PODGROUPS, QUEUES, Resource
from trainer_kai.cli.commands.queue.hold_release import stop_policy_of
from trainer_kai.cli.commands.queue.write_plan import effective_access
from trainer_kai.cli.options import connection
from trainer_kai.cli.output.cluster_totals import cluster_total, quota_notes, total_lines
from trainer_kai.cli.output.missing_rights import grant_hint, missing_right
from trainer_kai.cli.output.queue_tables import amounts_json, as_json, as_text, read_queues
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.client import Client, command_client
from trainer_kai.kube.rest.request import ListTarget
from trainer_kai.kube.rest.response import Forbidden, NotFound
from trainer_kai.policy.queueing.stop_policy import StopPolicy

T = TypeVar("T", bound=Object)

_STOPPED: Final = {StopPolicy.HOLD: "held", StopPolicy.HOLD_AND_DRAIN: "drained"}


class _Read(NamedTuple):
    queues: list[Queue]
    podgroups: list[PodGroup] | None  # None: they cannot be listed
    nodes: list[Node] | None


def run_list(args: argparse.Namespace) -> int:
    queues, podgroups, nodes = asyncio.run(_fetch(args))
    total = cluster_total(nodes) if nodes is not None else None
    amounts, notes = read_queues(queues, podgroups or (), total)
    if podgroups is None:
        notes.append("PodGroups cannot be listed: queues that do not exist are not shown")
    if total is None:
        notes.append(missing_right("fair shares and idle GPUs", NODES, ""))
    else:
        notes += quota_notes(amounts, total)
    by_name = {it.metadata.name: it for it in queues}
    access_by_queue = {name: effective_access(by_name, name) for name in by_name}
    held = {name: it for name in by_name if (it := stop_policy_of(by_name, name)).is_held}
    for note in notes:
        print(f"trainer-kai: {note}", file=sys.stderr)
    if args.output == "json":
        document = as_json(amounts, access_by_queue, args.unannotated)
        for queue in document["queues"]:
            queue["stopPolicy"] = str(
                held[queue["name"]].policy if queue["name"] in held else "None"
            )
        document["total"] = amounts_json(total) if total else None
        print(json.dumps(document, indent=2))
    else:
        stopped = {name: f", {_STOPPED[it.policy]}" for name, it in held.items()}
        print(as_text(amounts, access_by_queue, args.unannotated, stopped))
        for line in total_lines(amounts, total) if total else ():
            print(line)
    return 0


async def _fetch(args: argparse.Namespace) -> _Read:
    async with command_client(**connection(args)) as client:
        try:
            queues = await client.list(ListTarget(QUEUES))
        except NotFound as error:
            message = f"the cluster does not have this kind: {error.details.message}"
            raise ConfigError([FieldError(str(QUEUES), message)]) from error
        except Forbidden as error:
            raise ConfigError([FieldError(str(QUEUES), grant_hint(QUEUES, ""))]) from error
        return _Read(queues, await _readable(client, PODGROUPS), await _readable(client, NODES))


async def _readable(client: Client, resource: Resource[T]) -> list[T] | None:
    """Return all objects of a kind; None if they cannot be listed."""
    try:
        return await client.list(ListTarget(resource))
    except (Forbidden, NotFound):
        return None
