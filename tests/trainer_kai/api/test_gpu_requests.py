"""Shares of GPUs are read exactly, and a fault says what to write."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.state.pods.gpu_share_metadata import GpuSharing, read_gpu_sharing
from tests.support.case import Case, ids
from trainer_kai.api.bounds import MAX_MEMORY_MIB
from trainer_kai.api.gpu_requests import (
    charged_gpus,
    fraction_fault,
    gpu_share_faults,
    read_devices,
    read_fraction,
    read_memory_mib,
    unknown_container_fault,
)
from trainer_kai.api.pod import Container, PodSpec

DEVICES = "gpu-fraction-num-devices"
NAME = "gpu-fraction-container-name"
_RANGE = "must be a number above 0 and below 1, such as 0.5"
_REMOVE = "For whole GPUs remove the annotation and request nvidia.com/gpu"
_NONE = "must be MiB as a whole number above 0, such as 3072"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0.5", 500),
        ("+0.5", 500),
        (".5", 500),
        ("5e-1", 500),
        ("5E-1", 500),
        ("500e-3", 500),
        ("0.125", 125),
        ("0.0004", 1),
        ("1e-99", 1),
        ("1e-300", f"'1e-300' {_RANGE}"),
        ("0.9999", 1000),
        ("1", 1000),
        ("1.", 1000),
        ("0.1e1", 1000),
        ("0." + "3" * 98, 334),
        ("0", f"'0' {_RANGE}"),
        ("0e5", f"'0e5' {_RANGE}"),
        ("-0.5", f"'-0.5' {_RANGE}"),
        ("nan", f"'nan' {_RANGE}"),
        ("inf", f"'inf' {_RANGE}"),
        ("1_0", f"'1_0' {_RANGE}"),
        (" 0.5", f"' 0.5' {_RANGE}"),
        ("0.5\n", rf"'0.5\n' {_RANGE}"),
        ("\u0660.\u0665", f"'\u0660.\u0665' {_RANGE}"),
        ("0x1p-1", f"'0x1p-1' {_RANGE}"),
        (".", f"'.' {_RANGE}"),
        ("", f"'' {_RANGE}"),
        ("50%", f"'50%' {_RANGE}"),
        ("500m", "'500m' must be a number without a suffix; write 0.5"),
        ("125m", "'125m' must be a number without a suffix; write 0.125"),
        ("5m", "'5m' must be a number without a suffix; write 0.005"),
        ("4m", f"'4m' {_RANGE}"),
        ("2", f"'2' {_RANGE}. {_REMOVE}: 2"),
        ("2.0", f"'2.0' {_RANGE}. {_REMOVE}: 2"),
        ("2000m", f"'2000m' {_RANGE}. {_REMOVE}: 2"),
        ("1.0001", f"'1.0001' {_RANGE}. {_REMOVE}"),
        ("1e99", f"'1e99' {_RANGE}"),
        ("1e9999", f"'1e9999' {_RANGE}"),
        ("9" * 101, f"'99999999999999999999…' {_RANGE}"),
    ],
)
def test_a_fraction(text: str, want: int | str) -> None:
    """In thousandths, rounded up; 1 is a fraction for the scheduler."""
    assert read_fraction(text) == want


@pytest.mark.parametrize("text", ["1", "1.0", "10e-1", "1" + ".", "1000e-3"])
def test_admission_refuses_a_whole_gpu(text: str) -> None:
    """As KAI's admission does, and says what to request instead."""
    assert fraction_fault(text) == f"{text!r} {_RANGE}. {_REMOVE}: 1"


def test_admission_refuses_what_the_api_server_reads_as_a_whole_gpu() -> None:
    """The policy compares floats, and lint reports the same."""
    text = "0." + "9" * 20

    assert read_fraction(text) == 1000
    assert fraction_fault(text) == f"{text!r} {_RANGE}. {_REMOVE}"


@pytest.mark.parametrize("text", ["0.9999", "0.999999999999999", "0.5", "1e-1"])
def test_admission_accepts_what_is_below_a_whole_gpu(text: str) -> None:
    """Also where the share of the scheduler is a whole GPU."""
    assert fraction_fault(text) is None


@pytest.mark.parametrize("text", ["0.004", "0.0049999", "1e-99"])
def test_admission_refuses_what_no_queue_is_charged_for(text: str) -> None:
    """The scheduler reads it, for pods that exist already."""
    assert read_fraction(text) in range(1, 6)
    assert fraction_fault(text) == (
        f"{text!r} must be at least 0.005, because queues are charged in hundredths of a GPU"
    )
    assert fraction_fault("0.005") is None


def test_a_fault_of_the_scheduler_is_one_of_admission() -> None:
    """Whatever the scheduler refuses is refused earlier."""
    assert fraction_fault("2") == read_fraction("2")


@given(st.fractions(0, 2), st.integers(0, 30))
def test_any_decimal_is_exact(number: Fraction, digits: int) -> None:
    """No binary floating point: a share is rounded up once."""
    units = number.numerator * 10**digits // number.denominator
    text = f"{units}e-{digits}"
    exact = Fraction(units, 10**digits)

    found = read_fraction(text)

    assert isinstance(found, int) == (0 < exact <= 1)
    if isinstance(found, int):
        assert found - 1 < exact * 1000 <= found
        assert (fraction_fault(text) is None) == (0.005 <= float(exact) < 1)


# annotations of a pod, and the memory of a GPU -> what its queue is charged
CHARGED: list[Case[tuple[dict[str, str], int], int]] = [
    Case("a pod without share is charged nothing", ({}, 40_000), 0),
    Case("half a GPU", ({"gpu-fraction": "0.5"}, 0), 500),
    Case("rounded half up", ({"gpu-fraction": "0.125"}, 0), 130),
    Case("of several GPUs", ({"gpu-fraction": "0.25", DEVICES: "3"}, 0), 750),
    Case("memory, rounded up", ({"gpu-memory": "10001"}, 40_000), 260),
    Case("more memory than there is", ({"gpu-memory": "50000"}, 40_000), 1000),
    Case("of an unknown memory", ({"gpu-memory": "1", DEVICES: "2"}, 0), 2000),
    Case("an invalid one", ({"gpu-fraction": "x"}, 0), 0),
    Case("an invalid number", ({"gpu-fraction": "0.5", DEVICES: "x"}, 0), 0),
    Case("an invalid memory is charged nothing", ({"gpu-memory": "x"}, 40_000), 0),
]


@pytest.mark.parametrize("case", CHARGED, ids=ids)
def test_what_a_queue_is_charged(case: Case[tuple[dict[str, str], int], int]) -> None:
    """As the scheduler charges it, in thousandths of a GPU."""
    annotations, memory_mib = case.given

    charged = read_gpu_sharing(annotations, {}, ())

    assert charged_gpus(annotations, memory_mib) == case.want
    if isinstance(charged, GpuSharing):
        assert charged.queue_request(memory_mib) == case.want


# the annotations of a pod with containers a and b, and init container i -> the faults
CONTAINERS: list[Case[dict[str, str], list[str]]] = [
    Case("no container need be named", {"gpu-fraction": "0.5"}, []),
    Case("a container may be named", {"gpu-fraction": "0.5", NAME: "b"}, []),
    Case("an init container", {"gpu-memory": "100", NAME: "i"}, []),
    Case(
        "a container that is not there is a fault",
        {"gpu-fraction": "0.5", NAME: "c"},
        [
            (
                f"metadata.annotations[{NAME}]: the pod has no container 'c'. Name one of its "
                "containers: 'i', 'a', 'b'"
            )
        ],
    ),
    Case("an empty name", {"gpu-fraction": "0.5", NAME: ""}, []),
    Case("without a share", {NAME: "c"}, []),
]


@pytest.mark.parametrize("case", CONTAINERS, ids=ids)
def test_the_container_exists(case: Case[dict[str, str], list[str]]) -> None:
    """A share is for one container, or init container, of the pod."""
    a, b, i = (Container(name=name) for name in "abi")
    spec = PodSpec(init_containers=(i,), containers=(a, b))

    assert list(map(str, gpu_share_faults(case.given, spec, ""))) == case.want


def test_a_list_of_containers_is_short() -> None:
    """A message stays readable, whatever the pod is like."""
    names = [f"{'n' * 200}-{i}" for i in range(300)]

    fault = unknown_container_fault("x" * 1000, names)

    assert fault is not None
    assert fault.endswith(" and 295 more")
    assert len(fault) < 300


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("1", 1),
        ("20000", 20000),
        ("0010", 10),
        (str(2**64), MAX_MEMORY_MIB),
        ("3Gi", "'3Gi' must be MiB as a whole number; write 3072"),
        ("1.5Gi", "'1.5Gi' must be MiB as a whole number; write 1536"),
        ("512Mi", "'512Mi' must be MiB as a whole number; write 512"),
        ("1Ki", "'1Ki' must be MiB as a whole number; write 1"),
        ("3000M", "'3000M' must be MiB as a whole number; write 2862"),
        ("3G", "'3G' must be MiB as a whole number; write 2862"),
        ("3k", "'3k' must be MiB as a whole number; write 1"),
        ("1024.5", "'1024.5' must be MiB as a whole number; write 1025"),
        ("1024.0", "'1024.0' must be MiB as a whole number; write 1024"),
        ("1e4", "'1e4' must be MiB as a whole number; write 10000"),
        ("+5", "'+5' must be MiB as a whole number; write 5"),
        ("0", f"'0' {_NONE}"),
        ("0Gi", f"'0Gi' {_NONE}"),
        ("-1", f"'-1' {_NONE}"),
        ("-3Gi", f"'-3Gi' {_NONE}"),
        ("500m", f"'500m' {_NONE}"),
        ("8Ei", f"'8Ei' {_NONE}"),
        ("1e99", f"'1e99' {_NONE}"),
        ("3GiB", f"'3GiB' {_NONE}"),
        ("3 Gi", f"'3 Gi' {_NONE}"),
        ("half", f"'half' {_NONE}"),
        ("nan", f"'nan' {_NONE}"),
        ("", f"'' {_NONE}"),
        ("\u0663", f"'\u0663' {_NONE}"),
        ("1" * 101, f"'11111111111111111111…' {_NONE}"),
    ],
)
def test_gpu_memory(text: str, want: int | str) -> None:
    """In MiB; another quantity is converted, and rounded up."""
    assert read_memory_mib(text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("1", 1),
        ("64", 64),
        ("002", 2),
        *(
            (text, f"{text!r} must be a whole number from 1 to 64")
            for text in ("0", "65", "-1", "+1", "2.0", "1e1", "two", "", "nan", "9" * 99, "\u0662")
        ),
    ],
)
def test_devices(text: str, want: int | str) -> None:
    assert read_devices(text) == want
