"""Flags that several commands share."""

import argparse

__all__ = ["add_cluster_flags"]


def add_cluster_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name a cluster."""
    parser.add_argument("--kubeconfig", default="")
    parser.add_argument("--context", default="")
