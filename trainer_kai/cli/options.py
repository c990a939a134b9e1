"""Flags that several commands share."""

import argparse


def add_cluster_flags(verb: argparse.ArgumentParser) -> None:
    """Add the flags that name a cluster."""
    verb.add_argument("--kubeconfig", default="")
    verb.add_argument("--context", default="")
