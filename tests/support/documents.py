"""Files of YAML documents that tests read: manifests, runtimes, and what was recorded."""

from pathlib import Path
from typing import Any

import yaml


def documents(file: Path) -> list[Any]:
    """Read every document of a file that is not empty."""
    return [it for it in yaml.load_all(file.read_text(), yaml.CSafeLoader) if it]
