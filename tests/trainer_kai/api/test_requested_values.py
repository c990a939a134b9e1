"""What workloads ask for by labels and annotations is taken at its word, or refused."""

import pytest

from tests.support.case import Case, ids
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.pod import Pod
from trainer_kai.api.validate import pod_faults

PART = "must be a number above 0 and below 1, such as 0.5"
WHOLE = ". For whole GPUs remove the annotation and request nvidia.com/gpu: 1"

# (labels, annotations) of a pod -> its faults
CASES: list[Case[tuple[dict[str, str], dict[str, str]], list[str]]] = [
    Case(
        "what KAI documents",
        (
            {"kai.scheduler/queue": "team-a", "kai.scheduler/preemptibility": "preemptible"},
            {
                "kai.scheduler/batch-min-member": "2",
                "kai.scheduler/preemption-delay": "10m",
                "kai.scheduler/staleness-grace-period": "-1s",
                "kai.scheduler/topology": "default",
                "kai.scheduler/topology-required-placement": "example.org/rack",
                "kai.scheduler/skip-podgrouper": "true",
                "gpu-fraction": "0.9999",
                "gpu-fraction-num-devices": "2",
                "trainer-kai.dev/last-checkpoint": "2026-01-31T12:00:00.5+01:00",
            },
        ),
        [],
    ),
    Case("a tenth in scientific notation", ({}, {"gpu-fraction": "1e-1"}), []),
    Case(
        "a queue with a capital",
        ({"kai.scheduler/queue": "Team"}, {}),
        [
            (
                "metadata.labels[kai.scheduler/queue]: 'Team' must be 1 to 253 lower-case letters, "
                "digits, '-' and '.', and each part between dots begin and end with a letter "
                "or digit"
            )
        ],
    ),
    Case(
        "numbers that are none",
        ({}, {"kai.scheduler/batch-min-member": "0", "gpu-memory": "1Gi"}),
        [
            (
                "metadata.annotations[kai.scheduler/batch-min-member]: '0' must be an integer of "
                "1 or more"
            ),
            ("metadata.annotations[gpu-memory]: '1Gi' must be MiB as a whole number; write 1024"),
        ],
    ),
    Case(
        "halves of wishes",
        ({}, {"gpu-fraction-num-devices": "2", "kai.scheduler/topology-preferred-placement": "a"}),
        [
            (
                "metadata.annotations[kai.scheduler/topology-preferred-placement]: can only be set "
                "together with kai.scheduler/topology"
            ),
            (
                "metadata.annotations[gpu-fraction-num-devices]: can only be set together with "
                "gpu-fraction or gpu-memory"
            ),
        ],
    ),
    Case(
        "a checkpoint without a zone, and a flag that is none",
        (
            {},
            {
                "trainer-kai.dev/last-checkpoint": "2026-01-31T12:00:00",
                "kai.scheduler/skip-podgrouper": "yes",
            },
        ),
        [
            "metadata.annotations[kai.scheduler/skip-podgrouper]: 'yes' must be 'true' or 'false'",
            (
                "metadata.annotations[trainer-kai.dev/last-checkpoint]: '2026-01-31T12:00:00' must "
                "be a time such as '2026-01-31T12:00:00Z'"
            ),
        ],
    ),
]
CASES += [
    Case(
        f"a GPU fraction of {text!r}",
        ({}, {"gpu-fraction": text}),
        [f"metadata.annotations[gpu-fraction]: {text!r} {PART}{more}"],
    )
    for text, more in (
        *((text, "") for text in ("0", "-0.5", "nan", "half", "")),
        *((text, WHOLE) for text in ("1", "1.0")),
    )
]
CASES.append(
    Case(
        "a GPU fraction as a quantity",
        ({}, {"gpu-fraction": "500m"}),
        [
            (
                "metadata.annotations[gpu-fraction]: '500m' must be a number without a suffix; "
                "write 0.5"
            )
        ],
    )
)


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_requested_values(case: Case[tuple[dict[str, str], dict[str, str]], list[str]]) -> None:
    """What labels and annotations ask for can be meant."""
    labels, annotations = case.given
    pod = decode(Pod, encode({"metadata": {"labels": labels, "annotations": annotations}}))

    assert [str(fault) for fault in pod_faults(pod)] == case.want
