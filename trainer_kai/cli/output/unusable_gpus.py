"""Idle GPUs that no pod that waits can use, as sentences and as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from scheduler.core.nodes.strategies.idle_gpus import IdleCause, UnusableGpus
from trainer_kai.api.gpu_requests import WHOLE_GPU
from trainer_kai.api.text import first_listed

_MAX_NAMED: Final = 5  # nodes
_WORDS: Final[Mapping[IdleCause, str]] = {
    IdleCause.CPU: "for want of CPU",
    IdleCause.MEMORY: "for want of memory",
    IdleCause.PART_OF_GPU: "as parts of GPUs",
    IdleCause.NODE_TOO_SMALL: "as too few on one node",
    IdleCause.OTHER: "for other reasons",
}


def unusable_sentences(found: UnusableGpus, nodes: Sequence[str]) -> Iterator[str]:
    """Yield how many there are by cause, and on which nodes the most are; nothing if none is."""
    causes = _by_size(found.by_cause)
    if not causes:
        return
    amount, idle = _gpus(sum(causes.values())), _gpus(found.idle)
    text = ", ".join(f"{_gpus(n)} {_WORDS[cause]}" for cause, n in causes.items())
    yield f"{amount} of {idle} idle GPUs suit no pod that waits: {text}"
    by_node = sorted(found.by_node.items(), key=lambda it: (-sum(it[1].values()), it[0]))
    listed = (
        f"{nodes[node]} ({', '.join(f'{_gpus(n)} {_WORDS[it]}' for it, n in _by_size(of).items())})"
        for node, of in by_node
    )
    yield f"they are on {first_listed(listed, _MAX_NAMED)}"


def unusable_json(found: UnusableGpus, nodes: Sequence[str]) -> dict[str, Any]:
    return {
        "idle": found.idle / WHOLE_GPU,
        "byCause": _json(found.by_cause),
        "nodes": [
            {"name": nodes[node], "byCause": _json(causes)}
            for node, causes in sorted(found.by_node.items())
        ],
    }


def _by_size(causes: Mapping[IdleCause, int]) -> dict[IdleCause, int]:
    found = sorted(causes.items(), key=lambda it: (-it[1], -it[0]))
    return {cause: amount for cause, amount in found if amount}


def _json(causes: Mapping[IdleCause, int]) -> dict[str, float]:
    return {cause.name.lower(): n / WHOLE_GPU for cause, n in sorted(causes.items()) if n}


def _gpus(amount: int) -> str:
    return f"{amount / WHOLE_GPU:g}"
