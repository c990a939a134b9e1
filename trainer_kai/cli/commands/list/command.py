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
    rows, listing, namespace = _fetch_selected(args)
    if rows or args.output in ("json", "yaml"):
        _print(args, rows, listing)
    else:
        where = f"namespace {namespace}" if namespace else "the cluster"
        more = "" if args.all else " (--all shows those that ended as well)"
        _note([f"no workloads in {where}{more}", *listing.notes])
    while args.watch:
        time.sleep(_WATCH_S)
        before = {it.key: it for it in rows}
        rows, listing, _ = _fetch_selected(args)
        changed = [it for it in rows if before.get(it.key) != it]
        if changed:
            _print(args, changed, listing)
    return 0


def _fetch_selected(args: argparse.Namespace) -> "tuple[list[WorkloadRow], Listing, str]":
    namespace = None if args.all_namespaces else args.namespace
    rows, listing, name = fetch_rows(
        args,
        namespace=namespace,
        only_waiting=args.waiting,
        with_places=args.output != "name",
        with_nodes=args.output != "name" and not args.waiting,
    )
    return [it for it in rows if args.queue in ("", it.queue)], listing, name


def fetch_rows(
    args: argparse.Namespace,
    *,
    namespace: str | None,
    only_waiting: bool,
    with_places: bool = True,
    with_nodes: bool = False,
) -> "tuple[list[WorkloadRow], Listing, str]":
    """Return rows, what was read, and the namespace: that of the context for "", all for None."""
    import asyncio  # noqa: PLC0415 - not every command needs a cluster, and it is slow to import

    from trainer_kai.cli.commands.list.fetch import fetch_listing  # noqa: PLC0415 - as above
    from trainer_kai.cli.commands.list.rows import workload_rows  # noqa: PLC0415 - as above
    from trainer_kai.kube.client import command_client  # noqa: PLC0415 - as above
    from trainer_kai.policy.workloads.state import FINISHED, WorkloadState  # noqa: PLC0415

    async def fetch() -> "tuple[Listing, str]":
        async with command_client(**connection(args)) as client:
            name = "" if namespace is None else namespace or client.rest_config.namespace
            listing = await fetch_listing(
                client, name, with_nodes=with_nodes, with_places=with_places
            )
            return listing, name

    listing, name = asyncio.run(fetch())
    rows = workload_rows(listing.objects)
    if only_waiting:
        waiting = {WorkloadState.WAITS, WorkloadState.SUSPENDED}
        rows = [it for it in rows if it.state in waiting]
    elif not args.all:
        rows = [it for it in rows if it.state not in FINISHED]
    return rows, listing, name


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
