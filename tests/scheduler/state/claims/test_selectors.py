"""CEL expressions on one device, as NVIDIA's and AMD's DeviceClasses use them and beyond."""

from typing import Final

import pytest

from scheduler.state.claims.selectors import (
    Outcome,
    SelectableDevice,
    Selectors,
    attribute_text,
    selectable,
)
from tests.support.case import Case, ids
from trainer_kai.api.device_kinds import Device, DeviceAttribute, DeviceCapacity

_DEVICE: Final = selectable(
    "gpu.nvidia.com",
    Device(
        name="gpu-0",
        attributes={
            "type": DeviceAttribute(string="gpu"),
            "productName": DeviceAttribute(string="NVIDIA A100-SXM4-80GB"),
            "index": DeviceAttribute(number=1),
            "isLarge": DeviceAttribute(flag=True),
            "cudaComputeCapability": DeviceAttribute(version="8.0.0"),
            "preview": DeviceAttribute(version="1.2.3-rc.2"),
            "list": DeviceAttribute(),
            "resource.kubernetes.io/pcieRoot": DeviceAttribute(string="pci0000:00"),
        },
        capacity={"memory": DeviceCapacity(value="80Gi"), "bad": DeviceCapacity(value="x")},
    ),
)
_OWN: Final = "device.attributes['gpu.nvidia.com']"
_MEMORY: Final = "device.capacity['gpu.nvidia.com'].memory"
YES, NO = Outcome(True), Outcome(False)
_LONGER: Final = ".replace('a', 'aaaaaaaa')"
_LIST: Final = f"[{','.join(map(str, range(100)))}]"
CASES: list[Case[str, Outcome]] = [
    Case(
        "NVIDIA's class of GPUs", f"device.driver == 'gpu.nvidia.com' && {_OWN}.type == 'gpu'", YES
    ),
    Case(
        "NVIDIA's class of partitions",
        f"device.driver == 'gpu.nvidia.com' && {_OWN}.type == 'mig'",
        NO,
    ),
    Case("AMD's class", "device.driver == 'gpu.amd.com'", NO),
    Case(
        "AMD's class with an attribute",
        "device.driver == 'gpu.amd.com' && device.attributes['gpu.amd.com'].type == 'amdgpu'",
        NO,
    ),
    Case("double quotes", 'device.attributes["gpu.nvidia.com"].type == "gpu"', YES),
    Case(
        "several lines with a comment", f"{_OWN}.type == 'gpu' && // a GPU\n {_OWN}.index < 4", YES
    ),
    Case("a name in lower case", f"{_OWN}.productName.lowerAscii().matches('^.*a100.*$')", YES),
    Case("a name that contains another", f"{_OWN}.productName.contains('A100')", YES),
    Case("one of several names", f"{_OWN}.type in ['gpu', 'mig']", YES),
    Case("a number", f"{_OWN}.index >= 1 && {_OWN}.index < 2", YES),
    Case("a truth", f"{_OWN}.isLarge", YES),
    Case(
        "another domain",
        "device.attributes['resource.kubernetes.io'].pcieRoot == 'pci0000:00'",
        YES,
    ),
    Case("a bound name", f"cel.bind(own, {_OWN}, own.type == 'gpu' && own.index == 1)", YES),
    Case("memory that is equal", f"{_MEMORY} == quantity('80Gi')", YES),
    Case("memory that is enough", f"{_MEMORY}.compareTo(quantity('40Gi')) >= 0", YES),
    Case("memory that is no more", f"{_MEMORY}.isGreaterThan(quantity('80Gi'))", NO),
    Case("memory that is less", f"{_MEMORY}.isLessThan(quantity('1Ti'))", YES),
    Case("a sum of quantities", "quantity('1').add(quantity('500m')) == quantity('1.5')", YES),
    Case("a whole quantity", "quantity('2').isInteger() && quantity('2').asInteger() == 2", YES),
    Case("a text that is no quantity", "isQuantity('x')", NO),
    Case("a newer version", f"{_OWN}.cudaComputeCapability.isGreaterThan(semver('7.5.0'))", YES),
    Case("a part of a version", f"{_OWN}.cudaComputeCapability.major() == 8", YES),
    Case("a version before its release", f"{_OWN}.preview.isLessThan(semver('1.2.3'))", YES),
    Case("the tenth candidate", f"{_OWN}.preview.compareTo(semver('1.2.3-rc.10')) == -1", YES),
    Case("a text that is a version", "isSemver('1.0.0') && !isSemver('1.0')", YES),
    Case("an attribute that is there", f"has({_OWN}.type) && 'index' in {_OWN}", YES),
    Case("an attribute that is not", f"has({_OWN}.nope) || 'nope' in {_OWN}", NO),
    Case("a domain that is not there", "'x' in device.attributes['example.com']", NO),
    Case("a list is not seen", f"has({_OWN}.list)", NO),
    Case("shared devices", "device.allowMultipleAllocations", NO),
    Case("what is not asked does not fail", f"true || {_OWN}.nope == 1", YES),
    Case(
        "a missing attribute", f"{_OWN}.nope == 1", Outcome(False, 'Key not found in map : "nope"')
    ),
    Case(
        "a missing capacity",
        "device.capacity['example.com'].memory == quantity('1')",
        Outcome(False, 'Key not found in map : "memory"'),
    ),
    Case("a number is no truth", f"{_OWN}.index", Outcome(False, "returns 1, not a boolean")),
    Case("a division by zero", "1 / 0 == 1", Outcome(False, "divide by zero")),
    Case(
        "a quantity beside a version",
        f"{_MEMORY}.compareTo(semver('1.0.0')) > 0",
        Outcome(False, "a quantity cannot be compared with a version"),
    ),
    Case("an empty expression", " ", Outcome(False, "is empty")),
    Case(
        "too many repetitions",
        f"{_LIST}.all(a, {_LIST}.all(b, {_LIST}.all(c, a + b + c >= 0)))",
        Outcome(False, "costs too much: it may take more than 20000 steps for one device"),
    ),
    Case(
        "a text that is doubled again and again",
        "cel.bind(a, 'x', cel.bind(b, a + a, cel.bind(c, b + b, cel.bind(d, c + c, cel.bind(e, "
        "d + d, (e + e).size() > 0)))))",
        Outcome(False, "costs too much: it may take more than 20000 steps for one device"),
    ),
    Case(
        "a text that becomes longer by each replacement",
        f"'aaaa'{_LONGER * 6}.size() > 0",
        Outcome(False, "costs too much: it may take more than 20000 steps for one device"),
    ),
    Case("a name for a value", f"cel.bind(it, {_OWN}.type, it == 'gpu' || it == 'mig')", YES),
    Case("one of several", f"['mig', 'gpu'].exists(it, {_OWN}.type == it)", YES),
    Case(
        "too deep",
        f"{'(' * 40}true{')' * 40}",
        Outcome(
            False, "is no valid CEL expression: Expression recursion limit exceeded. limit: 32"
        ),
    ),
    Case(
        "a slow regular expression is fast",
        f"'{'a' * 64}'.matches('(a+)+b')",
        NO,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_an_expression(case: Case[str, Outcome]) -> None:
    """Also when it is asked again, and beside others."""
    selectors = Selectors()
    assert selectors.evaluate([case.given], _DEVICE) == case.want
    assert selectors.evaluate(["true", case.given], _DEVICE) == case.want


FAULTS: list[Case[str, str]] = [
    Case("a syntax error", "1 +", "is no valid CEL expression: "),
    Case("an unknown function", "nope(1)", "is no valid CEL expression: "),
    Case("types that do not fit", "quantity('1').isGreaterThan(1)", "is no valid CEL expression: "),
    Case("a long text", "x" * 10_241, "has 10241 characters, but an expression may have at most"),
    Case(
        "a long text that repeats a part of it",
        f"[{'1,' * 600}1].all(x, x > 0)",
        "has 1217 characters, but an expression that repeats a part of it may have at most 1024",
    ),
]


@pytest.mark.parametrize("case", FAULTS, ids=ids)
def test_an_expression_that_is_refused(case: Case[str, str]) -> None:
    """It is known before there is a device."""
    assert Selectors().fault(case.given).startswith(case.want)
    assert not Selectors().fault("true")


def test_devices_that_differ_only_where_nothing_is_asked_are_one() -> None:
    """A uuid that the expression does not name costs no evaluation."""
    selectors, text = Selectors(), f"{_OWN}.type == 'gpu'"
    for number in range(100):
        uuid = DeviceAttribute(string=f"GPU-{number}")
        one = Device(name="g", attributes={"type": DeviceAttribute(string="gpu"), "uuid": uuid})
        assert selectors.evaluate([text], selectable("gpu.nvidia.com", one)) == YES
    assert len(selectors._compiled(text).answers) == 1


LOOPING: list[Case[str, int]] = [
    Case("the attribute that it names", f"['x', 'gpu'].exists(it, {_OWN}.type == it)", 1),
    Case("by an index", f"['x', 'gpu'].exists(it, {_OWN}['type'] == it)", 1),
    Case("an attribute that another one names", f"['type'].exists(it, {_OWN}[it] == 'gpu')", 3),
]


@pytest.mark.parametrize("case", LOOPING, ids=ids)
def test_on_how_many_of_three_devices_a_loop_is_evaluated(case: Case[str, int]) -> None:
    """They differ only in an attribute that the text does not name."""
    selectors = Selectors()
    for number in range(3):
        uuid = DeviceAttribute(string=f"GPU-{number}")
        one = Device(name="g", attributes={"type": DeviceAttribute(string="gpu"), "uuid": uuid})
        selectors.evaluate([case.given], selectable("gpu.nvidia.com", one))
    assert len(selectors._compiled(case.given).answers) == case.want


def test_a_long_expression_is_evaluated_on_fewer_devices() -> None:
    long = " || ".join([f"{_OWN}.uuid == 'x'"] * 200)
    found = []
    for text in (f"{_OWN}.uuid == 'x'", long):
        selectors = Selectors()
        assert selectors.read(text)
        found.append(selectors._compiled(text)._most_devices)
    assert found == [10_309, 97]


def test_an_expression_is_evaluated_on_a_bounded_number_of_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scheduler.state.claims.selectors._MOST_DEVICES", 3)
    selectors, text = Selectors(), f"{_OWN}.uuid != 'x'"
    outcomes: list[Outcome | None] = []
    for number in range(4):
        uuid = DeviceAttribute(string=f"GPU-{number}")
        one = Device(name="g", attributes={"uuid": uuid})
        outcomes.append(selectors.evaluate([text], selectable("gpu.nvidia.com", one)))
    assert outcomes == [
        YES,
        YES,
        YES,
        Outcome(False, "is evaluated on at most 3 different devices"),
    ]


def test_an_installation_without_the_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make try` installs only what all files need."""

    def missing() -> None:
        raise ModuleNotFoundError("cel_expr_python")

    monkeypatch.setattr("scheduler.state.claims.selectors._environment", missing)
    why = "cannot be read, because the Python package cel-expr-python is not installed"
    assert Selectors().fault("true") == why


def numbered(number: int) -> SelectableDevice:
    uuid = DeviceAttribute(string=f"GPU-{number}")
    return selectable("gpu.nvidia.com", Device(name="g", attributes={"uuid": uuid}))


def test_without_steps_there_is_no_answer() -> None:
    """What was answered stays so; to compile costs steps as well, and is told only then."""
    selectors, text = Selectors(0), f"{_OWN}.uuid != 'x'"
    assert selectors.evaluate([text], numbered(0)) is None
    assert selectors.fault("1 +") == ""

    selectors.allowed = 1_000  # it may go beyond
    assert not selectors.fault(text)
    assert selectors.evaluate([text], numbered(0)) is None
    selectors.used = 0
    assert selectors.evaluate([text], numbered(0)) == YES
    selectors.allowed = 0
    assert selectors.evaluate([text], numbered(0)) == YES
    assert selectors.evaluate([text], numbered(1)) is None


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest expressions are compiled anew, and give the same answers."""
    monkeypatch.setattr("scheduler.state.claims.selectors._MOST_COMPILED", 4)
    monkeypatch.setattr("scheduler.state.claims.selectors._MOST_ANSWERS", 8)
    selectors, texts = Selectors(), [f"{_OWN}.uuid != 'GPU-{n}'" for n in range(9)]
    for text in (*texts, *texts):
        outcomes = [selectors.evaluate([text], numbered(it)) for it in range(5)]
        assert outcomes == [Outcome(f"'GPU-{n}'" not in text) for n in range(5)]
        known = [it for it in selectors._known.values() if it.is_compiled]
        assert len(known) <= 4
        assert sum(len(it.answers) for it in known) <= 8 + 1

    selectors.keep(texts[:2])
    assert [*selectors._known] == texts[:2]


def test_values_of_two_types_are_not_equal() -> None:
    one, two = (
        selectable("d", Device(name="g", attributes={"a": it}))
        for it in (DeviceAttribute(number=1), DeviceAttribute(flag=True))
    )
    assert attribute_text(one, "d/a") != attribute_text(two, "d/a")
    assert attribute_text(one, "d/b") is None
