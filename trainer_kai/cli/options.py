"""Flags that several commands share."""

import argparse
from collections.abc import Sequence
from typing import Any, TypeAlias

from trainer_kai.api.names import DEFAULT_QUEUE, SCHEDULER_NAME

# What `add_subparsers` returns has no public name.
Subcommands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001


def add_cluster_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig", default="", metavar="FILE", help="the kubeconfig file of the cluster"
    )
    parser.add_argument("--context", default="", metavar="NAME", help="the context to use in it")


def add_files_flag(
    parser: argparse.ArgumentParser, what: str, *, required: bool = True, more: str = ""
) -> None:
    parser.add_argument(
        "-f",
        dest="files",
        metavar="FILE",
        action="append",
        default=[],
        required=required,
        help=f"{what}; - is standard input; may be repeated{more}",
    )


def add_output_flag(
    parser: argparse.ArgumentParser, default: str = "table", more: str = ""
) -> None:
    help_text = f"the output format (default: {default}){more}"
    parser.add_argument(
        "-o", dest="output", choices=(default, "json"), default=default, help=help_text
    )


def add_scheduler_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scheduler-name",
        default=SCHEDULER_NAME,
        metavar="NAME",
        help=f"the setting scheduler_name of the cluster (default: {SCHEDULER_NAME})",
    )


def add_default_queue_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--default-queue",
        default=DEFAULT_QUEUE,
        metavar="QUEUE",
        help=f"the setting default_queue of the cluster (default: {DEFAULT_QUEUE})",
    )


def add_renamed_flag(parser: argparse.ArgumentParser, old: str, new: str) -> None:
    """Refuse the old name of a flag, with its new name."""
    parser.add_argument(old, action=_RenamedFlag, const=new, nargs="?", help=argparse.SUPPRESS)


class _RenamedFlag(argparse.Action):
    """A flag that ends with an error: its constant is its name now."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,  # noqa: ARG002 - argparse passes it
        values: str | Sequence[Any] | None,  # noqa: ARG002 - as above
        option_string: str | None = None,
    ) -> None:
        parser.error(f"{option_string} was renamed; use {self.const}")
