"""Write the JSON schema of the anticipated annotation."""

import json
from typing import Final

import msgspec

from tests.support.repository import ROOT
from trainer_kai.policy.podgroups.anticipated import AnticipatedAnnotation

PATH: Final = ROOT / "trainer_kai" / "policy" / "podgroups" / "anticipated.schema.json"


def schema() -> str:
    return json.dumps(msgspec.json.schema(AnticipatedAnnotation), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    PATH.write_text(schema())
