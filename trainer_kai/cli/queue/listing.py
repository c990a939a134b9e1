"""`trainer-kai queue list`: what each queue is owed, has and asks for, and who may use it.

All of it stands in the Queues: what they have is written by the scheduler, so it is as old as that.
"""

import argparse
import asyncio
import json
import sys

from trainer_kai.api.queue import Queue
from trainer_kai.api.resources import QUEUES
from trainer_kai.cli.queue.step import said_by
from trainer_kai.cli.queuetables import as_json, as_text, read_queues
from trainer_kai.errors import ConfigError, FieldError
from trainer_kai.kube.connect import command_client
from trainer_kai.kube.errors import NotFound
from trainer_kai.kube.request import Target

__all__ = ["run_list"]


def run_list(args: argparse.Namespace) -> int:
    """Print the queues."""
    queues = asyncio.run(_fetch(args))
    ends, notes = read_queues(queues)
    by_name = {it.metadata.name: it for it in queues}
    said = {name: said_by(by_name, name) for name in by_name}
    for note in notes:
        print(f"trainer-kai: {note}", file=sys.stderr)
    shown = as_json(ends, said, args.unannotated) if args.output == "json" else None
    print(json.dumps(shown, indent=2) if shown else as_text(ends, said, args.unannotated))
    return 0


async def _fetch(args: argparse.Namespace) -> list[Queue]:
    async with command_client(kubeconfig=args.kubeconfig, context=args.context) as client:
        try:
            return await client.list(Target(QUEUES))
        except NotFound as error:
            message = f"this cluster does not have that kind: {error.refusal.message}"
            raise ConfigError([FieldError(str(QUEUES), message)]) from error
