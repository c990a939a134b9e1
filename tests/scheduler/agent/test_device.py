"""Which device counts as the only one, on a stub of NVML that this process loads."""

import ctypes
from contextlib import suppress
from typing import Final

import pytest

from scheduler.agent import device
from scheduler.agent.device import DeviceUnknown, only_device
from tests.scheduler.agent.nvml_stub import build
from tests.support.case import Case, ids

UNINITIALIZED: Final = 1  # an error of NVML


@pytest.fixture(scope="module", autouse=True)
def stub(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Load the stub: a library is looked for by its name among the loaded ones first."""
    return ctypes.CDLL(str(build(tmp_path_factory.mktemp("nvml"))))


# what NVML shows -> the UUID
FOUND = [
    Case("the one device is found", "GPU-a", "GPU-a"),
    Case("one MIG device in its only slot", "GPU-a/MIG-1", "MIG-1"),
    Case("one MIG device among empty slots", "GPU-a/,,MIG-1,,,,", "MIG-1"),
    Case("one MIG device of two divided devices", "GPU-a/, GPU-b/,MIG-1", "MIG-1"),
    Case("one device beside one of which no MIG device is visible", "GPU-a/, GPU-b", "GPU-b"),
    Case("one device beside one that belongs to another container", "!4 GPU-b !4", "GPU-b"),
]

# what NVML shows, and which of its functions fails -> parts of the message
REFUSED: list[Case[tuple[str, str], list[str]]] = [
    Case(
        "no device is refused",
        ("", ""),
        ["shows 0 devices, but", "exactly 1: NVIDIA_VISIBLE_DEVICES is", "nvidia.com/gpu: 1"],
    ),
    Case(
        "two devices are refused",
        ("GPU-a GPU-b", ""),
        ["shows 2 devices (GPU-a, GPU-b), but", 'NVIDIA_VISIBLE_DEVICES is "all"', "privileged"],
    ),
    Case("two MIG devices", ("GPU-a/MIG-1,,MIG-2", ""), ["2 devices (MIG-1, MIG-2)"]),
    Case("two MIG devices of two", ("GPU-a/MIG-1 GPU-b/MIG-2", ""), ["2 devices (MIG-1, MIG-2)"]),
    Case("a MIG device beside a device", ("GPU-a/MIG-1 GPU-b", ""), ["2 devices (MIG-1, GPU-b)"]),
    Case("no MIG device", ("GPU-a/,,", ""), ["0 devices, but", "is visible of GPU-a, which MIG"]),
    Case("only devices of other containers", ("!4 !4", ""), ["shows 0 devices, but"]),
    Case("a device that is lost", ("!15", ""), ["nvmlDeviceGetHandleByIndex", "GPU is lost"]),
    Case(
        "a missing driver is refused",
        ("GPU-a", "nvmlInitWithFlags=9"),
        ["nvmlInit failed: Driver Not Loaded (error 9)", "gpu_sharing.runtime_class"],
    ),
    Case(
        "another driver than the library",
        ("GPU-a", "nvmlInitWithFlags=18"),
        ["version mismatch", "restart the node"],
    ),
    Case(
        "an error without a name",
        ("GPU-a", "nvmlDeviceGetUUID=777"),
        ["nvmlDeviceGetUUID failed: error 777 of the stub", "nvidia-smi works on the node"],
    ),
    Case(
        "a failure of a MIG device",
        ("GPU-a/MIG-1", "nvmlDeviceGetMigDeviceHandleByIndex=999"),
        ["nvmlDeviceGetMigDeviceHandleByIndex failed: Unknown Error"],
    ),
    Case(
        "a MIG mode that cannot be read",
        ("GPU-a", "nvmlDeviceGetMigMode=999"),
        ["nvmlDeviceGetMigMode failed"],
    ),
]


def show(monkeypatch: pytest.MonkeyPatch, devices: str, fails: str = "") -> None:
    """Let NVML show these devices, and a function fail."""
    monkeypatch.setenv("NVML_STUB_DEVICES", devices)
    monkeypatch.setenv("NVML_STUB_FAILS", fails)


@pytest.mark.parametrize("case", FOUND, ids=ids)
def test_the_only_device_is_found(case: Case[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A MIG device counts instead of the device that it is a part of."""
    show(monkeypatch, case.given)

    assert only_device("all") == case.want


@pytest.mark.parametrize("case", REFUSED, ids=ids)
def test_anything_else_is_refused(
    case: Case[tuple[str, str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what NVML shows or what failed, and what to check."""
    show(monkeypatch, *case.given)

    with pytest.raises(DeviceUnknown) as refused:
        only_device("all")

    message = str(refused.value)
    assert [part for part in case.want if part not in message] == [], message


@pytest.mark.parametrize("error", ["3", "13"])
def test_a_device_or_a_driver_without_mig_mode(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device does not support it, or the library has no such function."""
    show(monkeypatch, "GPU-a", f"nvmlDeviceGetMigMode={error}")

    assert only_device(None) == "GPU-a"


@pytest.mark.parametrize("devices", ["GPU-a", "GPU-a GPU-b"])
def test_the_library_is_closed(
    devices: str, stub: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the agent keeps no file of the driver open, found or refused."""
    show(monkeypatch, devices)

    with suppress(DeviceUnknown):
        only_device(None)

    assert stub.nvmlDeviceGetCount_v2(ctypes.byref(ctypes.c_uint())) == UNINITIALIZED


def test_a_variable_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    show(monkeypatch, "")

    with pytest.raises(DeviceUnknown, match="NVIDIA_VISIBLE_DEVICES is not set"):
        only_device(None)


def test_a_uuid_may_be_bytes() -> None:
    """As releases of pynvml before 11.5 return it."""
    assert device._text(b"GPU-a") == device._text("GPU-a") == "GPU-a"
