"""What a pod asks of its node: of each resource the most it uses at any time.

Init containers run one after another, before the others. One that restarts Always is a sidecar and
stays, so those after it, and the containers, run beside it. What is requested for the whole pod
outranks its containers; a limit of the whole pod stands for a request that nobody made.
"""

from collections.abc import Mapping
from typing import Final

from trainer_kai.api.container import Container, Resources
from trainer_kai.api.names import EPHEMERAL_STORAGE, MEMORY
from trainer_kai.api.pod import PodSpec
from trainer_kai.api.quantity import Quantity, milli, spell_bytes, spell_milli

__all__ = ["Amounts", "demand", "spell", "spelt"]

Amounts = Mapping[str, int]  # resource → thousandths

_HUGE_PAGES: Final = "hugepages-"
_BYTES: Final = (MEMORY, EPHEMERAL_STORAGE)


def demand(spec: PodSpec) -> Amounts:
    """Return what a pod asks for, overhead included; a limit without a request is one."""
    beside: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            _add(beside, _asked(container))
            _raise(most, beside)
        else:
            alone = dict(beside)
            _add(alone, _asked(container))
            _raise(most, alone)
    for container in spec.containers:
        _add(beside, _asked(container))
    _raise(most, beside)
    if spec.resources is not None:
        most = {**_of(spec.resources), **most, **_of_whole(spec.resources)}
    _add(most, {name: milli(quantity) for name, quantity in spec.overhead.items()})
    return {name: amount for name, amount in most.items() if amount}


def spell(amounts: Amounts) -> dict[str, str]:
    """Write amounts as an object would, in order of their names."""
    return {name: spelt(name, amounts[name]) for name in sorted(amounts)}


def spelt(name: str, thousandths: int) -> str:
    """Write one amount as an object would."""
    whole = name in _BYTES and thousandths % 1000 == 0
    return spell_bytes(thousandths // 1000) if whole else spell_milli(thousandths)


def _asked(container: Container) -> Amounts:
    return _of(container.resources)


def _of(resources: Resources) -> Amounts:
    asked: dict[str, Quantity] = {**resources.limits, **resources.requests}
    return {name: milli(quantity) for name, quantity in asked.items()}


def _of_whole(resources: Resources) -> Amounts:
    """Return what outranks the containers; huge pages have no limit above what is requested."""
    limits = {k: v for k, v in resources.limits.items() if k.startswith(_HUGE_PAGES)}
    return _of(Resources(requests=resources.requests, limits=limits))


def _add(amounts: dict[str, int], more: Amounts) -> None:
    for name, amount in more.items():
        amounts[name] = amounts.get(name, 0) + amount


def _raise(amounts: dict[str, int], least: Amounts) -> None:
    for name, amount in least.items():
        amounts[name] = max(amounts.get(name, 0), amount)
