"""``python -m streammc.cli``: the command line where no script is installed."""

import sys

from streammc.cli import main

if __name__ == "__main__":
    sys.exit(main())
