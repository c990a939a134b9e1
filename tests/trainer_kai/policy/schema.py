"""Write the schema of what a group says of pods to come."""

import json
from typing import Final

import msgspec

from tests.support.tree import ROOT
from trainer_kai.policy.anticipated import AnticipatedAnnotation

__all__ = ["PATH", "schema"]

PATH: Final = ROOT / "trainer_kai" / "policy" / "anticipated.schema.json"


def schema() -> str:
    """Return the schema as it is written."""
    return json.dumps(msgspec.json.schema(AnticipatedAnnotation), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    PATH.write_text(schema())
