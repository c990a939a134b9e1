"""What pods request by annotation: shares of GPUs, MIG profiles, and what is refused."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from scheduler.state.pods.gpu_share_metadata import (
    GpuShareFault,
    GpuSharing,
    read_gpu_sharing,
    read_mig_annotations,
)
from tests.support.case import Case, ids
from tests.support.state.objects import encode_objects, group, node, pod, prefilter_failure_of
from trainer_kai.api.bounds import MAX_MEMORY_MIB

_GPUS = ("nvidia.com/gpu", "amd.com/gpu")


def _notes(**annotations: str) -> dict[str, str]:
    return {f"gpu-{name.replace('_', '-')}": value for name, value in annotations.items()}


# annotations → annotation, GPUs, thousandths, MiB
SHARES = [
    Case("a fraction is of one GPU", _notes(fraction="0.5"), ("gpu-fraction", 1, 500, 0)),
    Case(
        "a fraction may be of several GPUs",
        _notes(fraction="0.5", fraction_num_devices="3"),
        ("gpu-fraction", 3, 500, 0),
    ),
    Case(
        "a fraction is rounded up to thousandths",
        _notes(fraction="0.1231"),
        ("gpu-fraction", 1, 124, 0),
    ),
    Case("at least a thousandth", _notes(fraction="1e-9"), ("gpu-fraction", 1, 1, 0)),
    Case("all of it", _notes(fraction="1.0"), ("gpu-fraction", 1, 1000, 0)),
    Case("scientific notation is read", _notes(fraction="25e-2"), ("gpu-fraction", 1, 250, 0)),
    Case("memory is in MiB", _notes(memory="3072"), ("gpu-memory", 1, 0, 3072)),
    Case(
        "memory has an upper bound", _notes(memory="9" * 99), ("gpu-memory", 1, 0, MAX_MEMORY_MIB)
    ),
    Case(
        "64 GPUs are the most",
        _notes(memory="1", fraction_num_devices="64"),
        ("gpu-memory", 64, 0, 1),
    ),
]


@pytest.mark.parametrize("case", SHARES, ids=ids)
def test_shares(case: Case[dict[str, str], tuple[str, int, int, int]]) -> None:
    """They are exact."""
    assert read_gpu_sharing(case.given, {}, _GPUS) == GpuSharing(*case.want)


# annotations and requests → the annotation at fault, and a part of the message
REFUSED: list[Case[Any, Any]] = [
    *(
        Case(text[:20], (_notes(fraction=text), {}), ("gpu-fraction", "must be a number"))
        for text in (
            *(
                "",
                "0",
                "-0.5",
                "1.001",
                "2",
                "x",
                "NaN",
                "nan",
                "inf",
                "-inf",
                "Infinity",
                "0x1p-2",
            ),
            *("500m", "0,5", "1_0e-2", "½", "0.\u0665", " 0.5", "1e-400", "1e400", "1e" + "9" * 80),
            *("1e999999999", "0." + "0" * 5000 + "1", "9" * 100_000),
        )
    ),
    *(
        Case(text[:20], (_notes(memory=text), {}), ("gpu-memory", "must be MiB as a whole number"))
        for text in ("", "0", "-1", "1.5", "x", "1e3", "+5", "٣", "NaN", "0" * 100_000)
    ),
    Case(
        "memory as a quantity is refused", (_notes(memory="3Gi"), {}), ("gpu-memory", "write 3072")
    ),
    *(
        Case(
            f"{text[:9]} GPUs",
            (_notes(fraction="0.5", fraction_num_devices=text), {}),
            ("gpu-fraction-num-devices", "must be a whole number from 1 to 64"),
        )
        for text in ("", "0", "65", "-1", "1.5", "2e0", "9" * 100_000, "٢")
    ),
    Case(
        "a fraction beside memory is refused",
        (_notes(fraction="0.5", memory="1"), {}),
        ("gpu-memory", "cannot be set together with gpu-fraction"),
    ),
    Case(
        "a number of GPUs alone is refused",
        (_notes(fraction_num_devices="2"), {}),
        ("gpu-fraction-num-devices", "can only be set together with gpu-fraction or gpu-memory"),
    ),
    *(
        Case(
            resource,
            (_notes(fraction="0.5"), {resource: 1000}),
            ("gpu-fraction", f"cannot be set together with a request of {resource}"),
        )
        for resource in (*_GPUS, "nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.5gb.me")
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=ids)
def test_what_is_refused(
    case: Case[tuple[Mapping[str, str], Mapping[str, int]], tuple[str, str]],
) -> None:
    """The fault names the annotation and what would be right, and is short."""
    annotations, amounts = case.given

    found = read_gpu_sharing(annotations, amounts, _GPUS)

    assert isinstance(found, GpuShareFault)
    assert (found.annotation, case.want[1] in found.fault) == (case.want[0], True)
    assert len(found.fault) < 250


# annotations → profiles, and how many
PROFILES = [
    Case(
        "a profile is read with its count",
        {"nvidia.com/mig-1g.5gb": "2"},
        (("nvidia.com/mig-1g.5gb", 2),),
    ),
    Case(
        "a count of zero requests nothing",
        {"nvidia.com/mig-1g.5gb": "0", "nvidia.com/mig.strategy": "1"},
        (),
    ),
    Case(
        "a count that is no number requests nothing",
        {"nvidia.com/mig-1g.5gb": "1.5", "nvidia.com/mig-2g.10gb": "٢"},
        (),
    ),
    Case(
        "a huge count is bounded",
        {"nvidia.com/mig-1g.5gb": "9" * 9999},
        (("nvidia.com/mig-1g.5gb", 10**15 - 1),),
    ),
]


@pytest.mark.parametrize("case", PROFILES, ids=ids)
def test_mig_profiles_by_annotation(
    case: Case[dict[str, str], tuple[tuple[str, int], ...]],
) -> None:
    """Whole numbers above 0 count."""
    assert read_mig_annotations(case.given) == case.want


_HALF: dict[str, Any] = {"annotations": {"gpu-fraction": "0.5"}, "asks": {"cpu": "1"}}
_ADMITTED: dict[str, Any] = {
    "annotations": {"gpu-fraction": "0.5", "runai/shared-gpu-configmap": "p-x1y2z3a-shared-gpu"},
    "asks": {"cpu": "1"},
}
_3GI: dict[str, Any] = {"annotations": {"gpu-memory": "3Gi"}, "asks": {"cpu": "1"}}
_MIG: dict[str, Any] = {"annotations": {"nvidia.com/mig-1g.5gb": "1"}, "asks": {"cpu": "1"}}
_UNPREPARED: Final = (
    "Misconfigured",
    (
        "The annotation gpu-fraction of pod p requests a share of a GPU, but the pod has "
        "no valid annotation runai/shared-gpu-configmap: it was created while the webhook "
        "of trainer-kai did not change it. Delete the pod, so that it is created again"
    ),
)


def _named(prefix: str) -> dict[str, Any]:
    annotations = {"gpu-fraction": "0.5", "runai/shared-gpu-configmap": prefix}
    return {"annotations": annotations, "asks": {"cpu": "1"}}


# fields of a pod, and whether pods are given shares → reason and message
FAILURES: list[Case[Any, Any]] = [
    Case("a share is accepted where pods get shares", (_ADMITTED, True), None),
    Case(
        "a share without the webhook",
        (_HALF, True),
        _UNPREPARED,
    ),
    *(
        Case(f"ConfigMaps called {it!r}", (_named(it), True), _UNPREPARED)
        for it in (
            "",
            "../../x?y-x1y2z3a-shared-gpu",
            "p-shared-gpu",
            f"{'a' * 45}-x1y2z3a-shared-gpu",
        )
    ),
    Case("a share without the webhook of a pod on a node", ({**_HALF, "node": "a"}, True), None),
    *(
        Case(
            f"an invalid one, {places}",
            (_3GI, places),
            (
                "Misconfigured",
                (
                    "The annotation gpu-memory of pod p is invalid: '3Gi' must be MiB as a whole "
                    "number; write 3072. It can start when the annotation is corrected or removed"
                ),
            ),
        )
        for places in (False, True)
    ),
    Case(
        "MIG by annotation",
        (_MIG, True),
        (
            "NoNodeMatches",
            (
                "The annotation nvidia.com/mig-1g.5gb of pod p requests MIG profiles by "
                "annotation, which is not supported. It can start when it requests them as "
                "resources"
            ),
        ),
    ),
    Case("an invalid share of a pod on a node", ({**_3GI, "node": "a"}, True), None),
    Case("MIG by annotation of a pod on a node", ({**_MIG, "node": "a"}, True), None),
]


@pytest.mark.parametrize("case", FAILURES, ids=ids)
def test_what_keeps_a_pod_waiting(
    case: Case[tuple[dict[str, Any], bool], tuple[str, str] | None],
) -> None:
    """A pending pod has a failure with a message that names the pod; a running one has none."""
    fields, places = case.given

    found = encode_objects(node("a"), pod("p", **fields), places_gpu_shares=places)

    assert prefilter_failure_of(found, "pg-p-p") == case.want


def test_in_files_pods_need_not_be_prepared() -> None:
    """No container starts there."""
    found = encode_objects(
        node("a"), pod("p", **_HALF), places_gpu_shares=True, trusts_gpu_labels=True
    )

    assert prefilter_failure_of(found, "pg-p-p") is None


def test_one_pod_that_the_webhook_missed_keeps_its_podgroup_waiting() -> None:
    """The others have a ConfigMap each, and are of one class all the same."""
    prefixes = {
        f"p{n}": {"runai/shared-gpu-configmap": f"p{n}-x1y2z3a-shared-gpu"} for n in range(3)
    }
    pods = [
        pod(name, "g", annotations={"gpu-fraction": "0.5", **more}, asks={})
        for name, more in {**prefixes, "old": {}}.items()
    ]

    found = encode_objects(node("a"), group("g"), *pods, places_gpu_shares=True)
    without = encode_objects(node("a"), group("g"), *pods[:3], places_gpu_shares=True)

    reason, message = prefilter_failure_of(found, "g") or ("", "")
    assert (reason, "of pod old" in message) == ("Misconfigured", True)
    assert prefilter_failure_of(without, "g") is None
    assert len({*without.snapshot.pods.signature.tolist()}) == 1
