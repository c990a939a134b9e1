"""Flags that several commands share."""

import argparse
from collections.abc import Sequence
from typing import Any, Final

from trainer_kai.api.names import DEFAULT_QUEUE, SCHEDULER_NAME

_OUTPUT_HELP: Final = "the output format (default: {})"


def add_cluster_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that select a cluster."""
    parser.add_argument(
        "--kubeconfig", default="", metavar="FILE", help="the kubeconfig file of the cluster"
    )
    parser.add_argument("--context", default="", metavar="NAME", help="the context to use in it")


def add_output_flag(
    parser: argparse.ArgumentParser, default: str = "table", more: str = ""
) -> None:
    """Add the flag that selects the output format."""
    help_text = _OUTPUT_HELP.format(default) + more
    parser.add_argument(
        "-o", dest="output", choices=(default, "json"), default=default, help=help_text
    )


def add_scheduler_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag with the scheduler name of the cluster."""
    parser.add_argument(
        "--scheduler-name",
        default=SCHEDULER_NAME,
        metavar="NAME",
        help=f"the setting scheduler_name of the cluster (default: {SCHEDULER_NAME})",
    )


def add_default_queue_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag with the default queue of the cluster."""
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
