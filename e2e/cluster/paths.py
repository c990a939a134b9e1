"""Where the real chain keeps its files: one root outside every checkout."""

import os
from pathlib import Path


def cache_root() -> Path:
    """Return the folder for everything that outlives a run; TRAINER_KAI_CACHE moves it."""
    if chosen := os.environ.get("TRAINER_KAI_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "trainer-kai"


def chain_source() -> Path:
    """Return the folder of the Go module that names every program of the chain."""
    return Path(__file__).parent / "chain"


def helm_source() -> Path:
    """Return the folder of Helm's own Go module: it requires newer libraries than the chain."""
    return Path(__file__).parent / "helm"


def operator_sources() -> list[Path]:
    """Return the folders of the Go modules of operators, which only a soak runs."""
    return sorted(file.parent for file in (Path(__file__).parent / "operators").glob("*/go.mod"))


def programs_root() -> Path:
    """Return the folder of the built programs, which clusters of all checkouts share."""
    return cache_root() / "programs"


def clusters_root() -> Path:
    """Return the folder with one run folder per living cluster."""
    return cache_root() / "clusters"


def kept_logs_root() -> Path:
    """Return the folder with the logs of failed runs, newest ten only."""
    return cache_root() / "kept-logs"
