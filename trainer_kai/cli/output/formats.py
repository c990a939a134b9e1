"""Documents for programs, as JSON or YAML."""

import json
from typing import Any


def document_text(document: dict[str, Any], output: str) -> str:
    if output == "yaml":
        import yaml  # noqa: PLC0415 - slow to import, and few outputs are YAML

        text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
        return text.rstrip()
    return json.dumps(document, indent=2)
