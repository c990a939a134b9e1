"""Runs a command in a temporary folder and returns its output."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from trainer_kai.cli.main import main


class Terminal:
    """What a command is given, and what it says."""

    def __init__(self, command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder: Final = folder
        self._run_command: Final = command
        self._capsys: Final = capsys

    def write(self, name: str, *objects: Any) -> str:
        """Write a file and return its path; text is written as it is."""
        text = "\n---\n".join(it if isinstance(it, str) else yaml.safe_dump(it) for it in objects)
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run the command; return its exit code and what it wrote."""
        code = main([self._run_command, *arguments])
        output = self._capsys.readouterr()
        return code, output.out, output.err
