"""What a tenant's claims say, and how much a driver publishes: bounded, and said.

Times are ratios of CPU time in the same run.
"""

from typing import Final

import pytest

from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.state.claims.device_table import DeviceFilterKey, DeviceTable
from scheduler.state.claims.selectors import Selectors
from scheduler.state.nodes.node_table import NodeTable
from tests.support.case import Case, ids
from tests.support.cpu_time import assert_cpu_ratio, cpu_s
from tests.support.state.claim_plans import BASE, SLICES, new_gang, planned
from tests.support.state.devices import (
    DRIVER,
    IS_GPU,
    claim_template,
    claiming_pod,
    gpu,
    request,
    resource_claim,
    resource_slice,
)
from tests.support.state.objects import encode_objects, group
from trainer_kai.api.bounds import MOST_SELECTORS_PER_NAMESPACE
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.device_kinds import ResourceSlice

_POLICIES: Final = build_policies(PolicySelection())
_FEW, _MANY = 400, 2_000
_OWN: Final = f"device.attributes['{DRIVER}']"
_TEN: Final = "[0,1,2,3,4,5,6,7,8,9]"
_LONGER: Final = ".replace('a', 'aaaaaaaa')"
_COSTLY: Final = "costs too much: it may take more than 20000 steps for one device"


def _plan_s(count: int) -> float:
    """Return the time for a plan beside so many waiting pods with claims."""
    objects = [*BASE, *SLICES, *new_gang(1)]
    for n in range(count):
        objects += (
            claiming_pod(f"x{n}", template="t"),
            resource_claim(f"x{n}-gpu", request(count=9), of=f"x{n}"),
        )
    return cpu_s(lambda: plan(encode_objects(*objects).snapshot, _POLICIES))


def test_many_claims() -> None:
    """Five times as many cost a little more than five times as much."""
    assert_cpu_ratio(12, lambda: _plan_s(_MANY), lambda: _plan_s(_FEW))


def _read_s(nodes: int) -> float:
    """Return the time to read the devices of nodes, 128 each, and to evaluate a selector."""
    slices = {
        f"n{n}": decode(
            ResourceSlice, encode(resource_slice(f"n{n}", [gpu(f"gpu-{d}") for d in range(128)]))
        )
        for n in range(nodes)
    }
    table = NodeTable()
    table.names = tuple(sorted(slices))
    table.row_by_name = {name: row for row, name in enumerate(table.names)}
    devices = DeviceTable(table, Selectors())

    def read() -> None:
        devices.read(slices, ())
        assert devices.evaluate(DeviceFilterKey((IS_GPU,), ()))
        found = devices.filtered(DeviceFilterKey((IS_GPU,), ()))
        assert found.selected.sum() == len(devices.names) == 128 * nodes

    return cpu_s(read)


def test_many_devices() -> None:
    assert_cpu_ratio(20, lambda: _read_s(80), lambda: _read_s(10))


COSTLY: list[Case[str, str]] = [
    Case(
        "a long part that is repeated",
        f"{_TEN}.all(x, {_TEN}.all(y, {' || '.join(['x < y'] * 80)}))",
        _COSTLY,
    ),
    Case("repeated thrice", f"{_TEN}.all(x, {_TEN}.all(y, {_TEN}.all(z, x < y)))", _COSTLY),
    Case("a text that grows", f"'a'{_LONGER * 9}.size() > 0", _COSTLY),
    Case("a list of texts that grows", f"{_TEN}.map(x, 'a' + 'b').map(x, x + x) == []", _COSTLY),
    Case("quotes of quotes", f"{'strings.quote(' * 20}'x'{')' * 20} == ''", _COSTLY),
]


@pytest.mark.parametrize("case", COSTLY, ids=ids)
def test_a_costly_expression(case: Case[str, str]) -> None:
    """It is evaluated on no device, and the pod is told."""
    found = planned(
        *BASE, *SLICES, *new_gang(1, request(selectors=[{"cel": {"expression": case.given}}]))
    )
    assert isinstance(found, str)
    assert f"request 'gpu': the expression of selectors[0] {case.want}" in found


def test_many_different_selectors_of_a_namespace() -> None:
    """Those above the bound are not evaluated at all; the others, and other namespaces, go on."""
    objects = [*BASE, *SLICES]
    for n in range(3 * MOST_SELECTORS_PER_NAMESPACE):
        selector = {"cel": {"expression": f"{_OWN}.uuid != '{n}'"}}
        one = request(selectors=[selector])
        objects += (
            claim_template(f"t{n}", one),
            group(f"g{n}", minMember=1),
            claiming_pod(f"g{n}", f"g{n}", template=f"t{n}"),
            resource_claim(f"g{n}-gpu", one, of=f"g{n}"),
        )
    snapshot = encode_objects(*objects).snapshot
    assert len(snapshot.claim_devices.filters) <= MOST_SELECTORS_PER_NAMESPACE
    found = plan(snapshot, _POLICIES)
    assert len(found.allocations) == 4
