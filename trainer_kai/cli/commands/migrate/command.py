"""The arguments of `trainer-kai migrate`, which previews a move from KAI, Kueue or Volcano.

It never writes.
"""

import argparse
import json
import sys
from typing import TYPE_CHECKING

from trainer_kai.cli.options import Subcommands, add_cluster_flags, add_files_flag, connection
from trainer_kai.errors import ConfigError, FieldError

if TYPE_CHECKING:
    from trainer_kai.cli.input.documents import Document


def add_migrate(commands: Subcommands) -> None:
    parser = commands.add_parser(
        "migrate",
        help="preview a move from KAI, Kueue or Volcano: queues, grants, labels, what is missing",
        description="Preview a move to trainer-kai: what objects become, what to change by hand, "
        "and what is not supported. It writes nothing.",
        epilog="Exit code: 0; 2 if the input is invalid or the cluster does not have the system.",
    )
    parser.add_argument(
        "system", choices=("kai", "kueue", "volcano"), help="the system to move from"
    )
    what = "a file with objects of the system and its workloads"
    add_files_flag(parser, what, required=False, more=" (default: read the cluster)")
    parser.add_argument(
        "-o",
        dest="output",
        choices=("text", "json", "yaml"),
        default="text",
        help="the output format (default: text); yaml has only the objects to apply",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="accepted for clarity: the command never writes"
    )
    add_cluster_flags(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from trainer_kai.cli.commands.migrate.migration import as_json, as_text, as_yaml  # noqa: PLC0415 - as below
    from trainer_kai.cli.commands.migrate.plan_migration import plan_migration  # noqa: PLC0415 - as above
    from trainer_kai.cli.input.documents import display_name, read_files  # noqa: PLC0415 - as above
    from trainer_kai.cli.output.table import screen_width  # noqa: PLC0415 - as above

    documents = read_files(args.files) if args.files else _fetch(args)
    if not documents:
        names = ", ".join(map(display_name, args.files)) or "the cluster"
        raise ConfigError([FieldError("-f", f"no object found in {names}")])
    migration = plan_migration(args.system, documents)
    if args.output == "json":
        print(json.dumps(as_json(args.system, migration), indent=2))
    elif args.output == "yaml":
        print(as_yaml(migration))
        left = len(migration.by_hand), len(migration.unsupported)
        note = "{} changes by hand and {} fields without an equivalent are not in the YAML"
        print(f"trainer-kai: {note.format(*left)}: see -o text", file=sys.stderr)
    else:
        print(as_text(args.system, migration, screen_width()))
    return 0


def _fetch(args: argparse.Namespace) -> "list[Document]":
    import asyncio  # noqa: PLC0415 - files need no cluster, and it is slow to import

    from trainer_kai.cli.commands.migrate.fetch import fetch_documents  # noqa: PLC0415 - as above

    return asyncio.run(fetch_documents(args.system, connection(args)))
