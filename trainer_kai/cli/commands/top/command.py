"""The arguments of `trainer-kai top`: GPUs by node and by queue."""

import argparse
from typing import TYPE_CHECKING, Final

from trainer_kai.cli.options import Subcommands, add_cluster_flags, add_formats_flag, connection

if TYPE_CHECKING:
    from trainer_kai.cli.commands.top.nodes import NodeUse

_FORMATS: Final = ("table", "json", "yaml")


def add_top(commands: Subcommands) -> None:
    parser = commands.add_parser(
        "top",
        help="the GPUs of each node: used, free, and by which workloads",
        description="Show the GPUs of each node, those with the most free ones first.",
        epilog="Exit code: 0; 2 if nodes or pods cannot be read. For queues: `queue list`.",
    )
    add_formats_flag(parser, _FORMATS)
    add_cluster_flags(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    import asyncio  # noqa: PLC0415 - not every command needs a cluster, and it is slow to import

    from trainer_kai.cli.commands.top.nodes import as_document, as_table  # noqa: PLC0415 - as above
    from trainer_kai.cli.output.formats import document_text  # noqa: PLC0415 - as above

    uses = asyncio.run(_fetch(args))
    if args.output == "table":
        print(as_table(uses))
    else:
        print(document_text(as_document(uses), args.output))
    return 0


async def _fetch(args: argparse.Namespace) -> "list[NodeUse]":
    from trainer_kai.api.resources import NODES, PODS  # noqa: PLC0415 - as above
    from trainer_kai.cli.commands.top.nodes import node_uses  # noqa: PLC0415 - as above
    from trainer_kai.cli.output.missing_rights import grant_hint  # noqa: PLC0415 - as above
    from trainer_kai.errors import ConfigError, FieldError  # noqa: PLC0415 - as above
    from trainer_kai.kube.client import command_client  # noqa: PLC0415 - as above
    from trainer_kai.kube.rest.request import ListTarget, Selection  # noqa: PLC0415 - as above
    from trainer_kai.kube.rest.response import Forbidden  # noqa: PLC0415 - as above

    on_nodes = Selection(fields="spec.nodeName!=")
    async with command_client(**connection(args)) as client:
        resource = str(NODES)
        try:
            nodes = await client.list(ListTarget(NODES))
            resource = str(PODS)
            pods = await client.list(ListTarget(PODS, selection=on_nodes))
        except Forbidden as error:
            missing = PODS if resource == str(PODS) else NODES
            raise ConfigError([FieldError(resource, grant_hint(missing, ""))]) from error
    return node_uses(nodes, pods)
