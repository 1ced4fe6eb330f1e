"""`python -m tri_reduce`: the command line (see `cli.py`)."""

import sys

from tri_reduce.cli import main

if __name__ == "__main__":
    sys.exit(main())
