"""The pod that reserves a GPU is the one that docs/security.md shows and the policy allows."""

import yaml

from scheduler.shell.bind.gpu.reservation_manifest import (
    GpuPlace,
    ReservationPodOptions,
    reservation_pod,
)
from tests.support.repository import ROOT
from trainer_kai.service.settings import GpuSharingSettings, ReservationPodSettings


def test_the_documented_pod_is_created() -> None:
    """With the default settings."""
    text = (ROOT / "docs" / "security.md").read_text()
    shown = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    [container] = shown["spec"]["containers"]
    settings = GpuSharingSettings().runtime_class, ReservationPodSettings().priority_class
    place = GpuPlace(shown["spec"]["nodeName"], shown["metadata"]["labels"]["runai-gpu-group"])

    made = reservation_pod(place, ReservationPodOptions(container["image"], *settings))

    shown["metadata"]["name"] = made["metadata"]["name"]
    assert made == shown
