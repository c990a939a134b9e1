"""How much Python does, counted: the same on every machine, however much else it has to do."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["work"]


def work(call: Callable[[], object]) -> int:
    """Return how many instructions of Python a call takes."""
    count = 0

    def seen(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return seen

    before = sys.gettrace()
    sys.settrace(seen)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
