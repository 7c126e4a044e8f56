"""``python -m streammc.cli``: the command line without an installed script."""

import sys

from streammc.cli import main
from streammc.cli.own_code import leave_current_folder

if __name__ == "__main__":
    leave_current_folder()
    sys.exit(main())
