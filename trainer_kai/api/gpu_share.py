"""What a pod requests by `gpu-fraction`, `gpu-memory` and `gpu-fraction-num-devices`.

Each reader returns a number, or a text that says what is wrong with the value and what is right.
"""

import re
from decimal import Decimal
from typing import Final

from trainer_kai.api.names import GPU
from trainer_kai.api.quantity import MAX, QuantityError, is_whole, milli, whole

__all__ = [
    "MAX_DEVICES",
    "MAX_MEMORY_MIB",
    "WHOLE_GPU",
    "fraction_fault",
    "read_devices",
    "read_fraction",
    "read_memory_mib",
]

WHOLE_GPU: Final = 1000  # thousandths
MAX_DEVICES: Final = 64  # GPUs of which one pod may have shares
MAX_MEMORY_MIB: Final = 2**40  # more counts as this much: no GPU has it

_MIB: Final = 2**20
_LONGEST: Final = 100  # characters of a number that a user can mean
_SHOWN: Final = 20  # characters of a longer value in a message
_DECIMAL: Final = re.compile(r"[+-]?(?=\.?[0-9])[0-9]*\.?[0-9]*(?:[eE][+-]?[0-9]{1,3})?")
_WHOLE: Final = re.compile("[0-9]+")
_SUB_UNITS: Final = "mun"  # suffixes of quantities that are no amounts of memory


def read_fraction(text: str) -> int | str:
    """Return a fraction of one GPU in thousandths, rounded up: 1 to 1000."""
    if _is_decimal(text):
        thousandths = milli(text)
        if 0 < thousandths <= WHOLE_GPU:
            return thousandths
    elif _is_quantity(text) and 0 < milli(text) < WHOLE_GPU:
        return f"{text!r} must be a number without a suffix; write {_decimal(milli(text))}"
    return _out_of_range(text)


def fraction_fault(text: str) -> str | None:
    """Say what is wrong with a fraction of one GPU; admission also refuses 1, as KAI's does."""
    thousandths = read_fraction(text)
    if isinstance(thousandths, str):
        return thousandths
    return _out_of_range(text) if Decimal(text) == 1 else None


def read_memory_mib(text: str) -> int | str:
    """Return an amount of GPU memory in MiB, at most `MAX_MEMORY_MIB`."""
    number = _whole_number(text, MAX_MEMORY_MIB)
    if number:
        return number
    mib = 0 if number == 0 else _mib(text)
    example = f"write {mib}" if mib else "such as 3072"
    limit = " above 0" if number == 0 or not mib else ""
    separator = "; " if mib else ", "
    return f"{_shown(text)} must be MiB as a whole number{limit}{separator}{example}"


def read_devices(text: str) -> int | str:
    """Return the number of GPUs of which a pod has shares: 1 to `MAX_DEVICES`."""
    number = _whole_number(text, MAX_DEVICES + 1)
    if number and number <= MAX_DEVICES:
        return number
    return f"{_shown(text)} must be a whole number from 1 to {MAX_DEVICES}"


def _out_of_range(text: str) -> str:
    return f"{_shown(text)} must be a number above 0 and below 1, such as 0.5{_whole_gpus(text)}"


def _is_decimal(text: str) -> bool:
    return len(text) <= _LONGEST and bool(_DECIMAL.fullmatch(text))


def _is_quantity(text: str) -> bool:
    if len(text) > _LONGEST:
        return False
    try:
        whole(text)
    except QuantityError:
        return False
    return True


def _whole_number(text: str, largest: int) -> int | None:
    """Return a number, at most *largest*; None for a text that is none."""
    if len(text) > _LONGEST or not _WHOLE.fullmatch(text):
        return None
    return min(int(text), largest)


def _whole_gpus(text: str) -> str:
    """Say how to request the GPUs of a fraction that is 1 or more."""
    if not _is_quantity(text) or not WHOLE_GPU <= milli(text) < WHOLE_GPU**2:
        return ""
    if not is_whole(text):
        return f". For whole GPUs remove the annotation and request {GPU}"
    count = milli(text) // WHOLE_GPU
    return f". For whole GPUs remove the annotation and request {GPU}: {count}"


def _mib(text: str) -> int:
    """Return the MiB of a quantity, rounded up; 0 if the text can mean no amount of memory."""
    if not _is_quantity(text) or text[-1] in _SUB_UNITS or milli(text) <= 0:
        return 0
    if _is_decimal(text):
        amount = whole(text)  # a number without a suffix means MiB
    else:
        amount = -(-whole(text) // _MIB) if whole(text) < MAX else 0
    return amount if amount <= MAX_MEMORY_MIB else 0


def _decimal(thousandths: int) -> str:
    return f"0.{thousandths:03}".rstrip("0")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LONGEST else f"{text[:_SHOWN]}…")
