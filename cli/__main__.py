"""``python -m streammc.cli``: the command line without an installed script."""

import sys

from streammc.cli import main

if __name__ == "__main__":
    sys.exit(main())
