"""The command line: `python -m trainer_kai.cli`."""

import sys

from trainer_kai.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
