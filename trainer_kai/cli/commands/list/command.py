"""The arguments of `trainer-kai list`: all workloads of a namespace or a cluster, one a row.

It reads lists from the API server with the rights of the user, and sends no request to our
processes.
"""

import argparse
import time
from typing import TYPE_CHECKING, Final

from trainer_kai.cli.options import (
    Subcommands,
    add_cluster_flags,
    add_formats_flag,
    add_namespace_flags,
    connection,
)

if TYPE_CHECKING:
    from trainer_kai.cli.commands.list.fetch import Listing
    from trainer_kai.cli.commands.list.rows import WorkloadRow

_FORMATS: Final = ("table", "wide", "json", "yaml", "name")
_WATCH_S: Final = 5.0


def add_list(commands: Subcommands) -> None:
    parser = commands.add_parser(
        "list",
        help="the TrainJobs, JobSets and Jobs of users: state, reason, position, GPUs",
        description="List workloads: their queue, state, since when, position in the order of their"
        " queue, GPUs, nodes, and why they wait.",
        epilog="Exit code: 0; 2 if nothing can be read. `trainer-kai why NAME` explains a row.",
    )
    add_namespace_flags(parser)
    parser.add_argument(
        "-q", "--queue", default="", metavar="QUEUE", help="only workloads of this queue"
    )
    parser.add_argument(
        "--waiting", action="store_true", help="only workloads that wait or are suspended"
    )
    parser.add_argument(
        "--all", action="store_true", help="also workloads that are complete or have failed"
    )
    parser.add_argument(
        "-w",
        "--watch",
        action="store_true",
        help="list again every 5 seconds, and print the rows that have changed",
    )
    add_formats_flag(parser, _FORMATS)
    add_cluster_flags(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    listing, namespace = _fetch(args)
    rows = _selected(args, listing)
    if rows or args.output in ("json", "yaml"):
        _print(args, rows, listing)
    else:
        where = f"namespace {namespace}" if namespace else "the cluster"
        more = "" if args.all else " (--all shows those that ended as well)"
        _note([f"no workloads in {where}{more}"])
    while args.watch:
        time.sleep(_WATCH_S)
        before = {it.key: (it.state, it.reason, it.queue, it.place, it.nodes) for it in rows}
        listing, _ = _fetch(args)
        rows = _selected(args, listing)
        changed = [
            it
            for it in rows
            if before.get(it.key) != (it.state, it.reason, it.queue, it.place, it.nodes)
        ]
        if changed:
            _print(args, changed, listing)
    return 0


def _fetch(args: argparse.Namespace) -> "tuple[Listing, str]":
    """Return what was read, and the namespace."""
    import asyncio  # noqa: PLC0415 - not every command needs a cluster, and it is slow to import

    from trainer_kai.cli.commands.list.fetch import fetch_listing  # noqa: PLC0415 - as above
    from trainer_kai.kube.client import command_client  # noqa: PLC0415 - as above

    async def fetch() -> "tuple[Listing, str]":
        async with command_client(**connection(args)) as client:
            namespace = args.namespace or client.rest_config.namespace
            namespace = "" if args.all_namespaces else namespace
            is_full = args.output != "name"
            listing = await fetch_listing(
                client, namespace, with_nodes=is_full and not args.waiting, with_places=is_full
            )
            return listing, namespace

    return asyncio.run(fetch())


def _selected(args: argparse.Namespace, listing: "Listing") -> "list[WorkloadRow]":
    from trainer_kai.cli.commands.list.rows import workload_rows  # noqa: PLC0415 - as above
    from trainer_kai.policy.workloads.state import FINISHED, WorkloadState  # noqa: PLC0415

    rows = workload_rows(listing.objects)
    if args.queue:
        rows = [it for it in rows if it.queue == args.queue]
    if args.waiting:
        waiting = {WorkloadState.WAITS, WorkloadState.SUSPENDED}
        return [it for it in rows if it.state in waiting]
    return rows if args.all else [it for it in rows if it.state not in FINISHED]


def _print(args: argparse.Namespace, rows: "list[WorkloadRow]", listing: "Listing") -> None:
    from trainer_kai.cli.commands.list.output import as_document, as_names, as_table  # noqa: PLC0415
    from trainer_kai.cli.output.formats import document_text  # noqa: PLC0415 - as above
    from trainer_kai.cli.output.table import is_coloured  # noqa: PLC0415 - as above

    if args.output in ("json", "yaml"):
        print(document_text(as_document(rows, listing.notes), args.output))
        return
    if args.output == "name":
        print(as_names(rows))
    else:
        table = as_table(
            rows,
            listing.now,
            with_namespace=args.all_namespaces,
            is_wide=args.output == "wide",
            is_coloured=is_coloured(),
        )
        print(table, flush=True)
    _note(listing.notes)


def _note(notes: "list[str] | tuple[str, ...]") -> None:
    import sys  # noqa: PLC0415 - as above

    for note in dict.fromkeys(notes):
        print(f"trainer-kai: {note}", file=sys.stderr)
