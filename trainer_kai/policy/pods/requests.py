"""What a pod requests of its node: the most it uses of each resource, and its host ports.

Init containers run one after another, before the others. One that restarts Always is a sidecar and
stays, so those after it, and the containers, run beside it. Requests of the whole pod outrank its
containers; a limit of the whole pod stands for a request that is not given. With host network each
container port of a sidecar or container is a host port, also where no host port is given.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from trainer_kai.api.container import Container, Resources
from trainer_kai.api.names import EPHEMERAL_STORAGE, MEMORY
from trainer_kai.api.pod import PodSpec
from trainer_kai.api.quantity import Quantity, format_bytes, format_milli, milli

ResourceAmounts = Mapping[str, int]  # resource → thousandths
_HUGE_PAGES: Final = "hugepages-"
_BYTES: Final = (MEMORY, EPHEMERAL_STORAGE)
ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - an address in an object, which no process binds to
TCP: Final = "TCP"


class PodHostPort(NamedTuple):
    """A port with its address."""

    protocol: str
    number: int
    address: str


def pod_requests(spec: PodSpec) -> ResourceAmounts:
    """Return what a pod requests, overhead included; a limit without a request is one."""
    beside: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            _add(beside, _container_requests(container))
            _raise_to(most, beside)
        else:
            alone = dict(beside)
            _add(alone, _container_requests(container))
            _raise_to(most, alone)
    for container in spec.containers:
        _add(beside, _container_requests(container))
    _raise_to(most, beside)
    if spec.resources is not None:
        most = {
            **_effective_requests(spec.resources),
            **most,
            **_pod_level_requests(spec.resources),
        }
    _add(most, {name: milli(quantity) for name, quantity in spec.overhead.items()})
    return {name: amount for name, amount in most.items() if amount}


def format_amounts(amounts: ResourceAmounts) -> dict[str, str]:
    """Write amounts as an object would, in order of their names."""
    return {name: format_amount(name, amounts[name]) for name in sorted(amounts)}


def format_amount(name: str, thousandths: int) -> str:
    """Write one amount as an object would."""
    is_whole = name in _BYTES and thousandths % 1000 == 0
    return format_bytes(thousandths // 1000) if is_whole else format_milli(thousandths)


def _container_requests(container: Container) -> ResourceAmounts:
    return _effective_requests(container.resources)


def _effective_requests(resources: Resources) -> ResourceAmounts:
    requested: dict[str, Quantity] = {**resources.limits, **resources.requests}
    return {name: milli(quantity) for name, quantity in requested.items()}


def _pod_level_requests(resources: Resources) -> ResourceAmounts:
    """Return what outranks the containers; huge pages have no limit above what is requested."""
    limits = {k: v for k, v in resources.limits.items() if k.startswith(_HUGE_PAGES)}
    return _effective_requests(Resources(requests=resources.requests, limits=limits))


def _add(amounts: dict[str, int], more: ResourceAmounts) -> None:
    for name, amount in more.items():
        amounts[name] = amounts.get(name, 0) + amount


def _raise_to(amounts: dict[str, int], least: ResourceAmounts) -> None:
    for name, amount in least.items():
        amounts[name] = max(amounts.get(name, 0), amount)


def pod_host_ports(spec: PodSpec) -> Iterator[PodHostPort]:
    """Yield the host ports of a pod, with duplicates."""
    sidecars = (one for one in spec.init_containers if one.restart_policy == "Always")
    for container in (*sidecars, *spec.containers):
        for port in container.ports:
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number > 0:
                yield PodHostPort(port.protocol or TCP, number, port.host_ip or ANY_ADDRESS)
