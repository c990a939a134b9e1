"""CPU and memory that one of our processes has used, as the kernel counts it."""

from pathlib import Path
from typing import Final

from e2e.fixtures.processes import ProductProcess

_TICKS: Final = 100  # of a processor's second


def cpu_s(ours: ProductProcess) -> float:
    """Return the seconds of processor that it took so far."""
    fields = (_proc(ours) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def most_memory_mib(ours: ProductProcess) -> int:
    """Return the most memory that it had at any time."""
    lines = (_proc(ours) / "status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if "VmHWM" in line)) // 1024


def _proc(ours: ProductProcess) -> Path:
    identity = ours.process.identity
    assert identity is not None
    return Path(f"/proc/{identity.pid}")
