"""`trainer-kai queue list`: quota, usage, requests and access of all queues.

The scheduler writes the usage into the status of the Queues. PodGroups are read as well: a queue
that they use and that does not exist has no status.
"""

import argparse
import asyncio
import json
import sys

from trainer_kai.api.kai_kinds import PodGroup, Queue
from trainer_kai.api.resources import PODGROUPS, QUEUES
from trainer_kai.cli.commands.queue.write_plan import effective_access
from trainer_kai.cli.options import connection
from trainer_kai.cli.output.queue_tables import as_json, as_text, read_queues
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.client import command_client
from trainer_kai.kube.rest.request import ListTarget
from trainer_kai.kube.rest.response import Forbidden, NotFound


def run_list(args: argparse.Namespace) -> int:
    queues, podgroups = asyncio.run(_fetch(args))
    amounts, notes = read_queues(queues, podgroups or ())
    if podgroups is None:
        notes.append("PodGroups cannot be listed: queues that do not exist are not shown")
    by_name = {it.metadata.name: it for it in queues}
    access_by_queue = {name: effective_access(by_name, name) for name in by_name}
    for note in notes:
        print(f"trainer-kai: {note}", file=sys.stderr)
    if args.output == "json":
        print(json.dumps(as_json(amounts, access_by_queue, args.unannotated), indent=2))
    else:
        print(as_text(amounts, access_by_queue, args.unannotated))
    return 0


async def _fetch(args: argparse.Namespace) -> tuple[list[Queue], list[PodGroup] | None]:
    """Return all Queues and PodGroups; no PodGroups if they cannot be listed."""
    async with command_client(**connection(args)) as client:
        try:
            queues = await client.list(ListTarget(QUEUES))
        except NotFound as error:
            message = f"the cluster does not have this kind: {error.details.message}"
            raise ConfigError([FieldError(str(QUEUES), message)]) from error
        try:
            return queues, await client.list(ListTarget(PODGROUPS))
        except (Forbidden, NotFound):
            return queues, None
