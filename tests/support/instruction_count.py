"""How many Python instructions a call takes: the same number on every machine."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from trainer_kai.service.garbage_collection import without_collection


def count_instructions(call: Callable[[], object]) -> int:
    """Return how many instructions of Python a call takes."""
    count = 0

    def seen(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return seen

    before = sys.gettrace()
    with without_collection():  # what others left to be cleared away is not the work of this call
        sys.settrace(seen)
        try:
            call()
        finally:
            sys.settrace(before)
    return count


def instruction_growth(work: Callable[[int], Callable[[], object]], size: int) -> float:
    """Return how many times the instructions double the size takes: 2 if linear, 4 if quadratic."""
    once, twice = (count_instructions(work(times * size)) for times in (1, 2))
    return twice / once
