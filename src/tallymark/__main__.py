"""`python -m tallymark`: the command line, also where the script is not on the path."""

import sys

from tallymark.cli import main

if __name__ == "__main__":
    sys.exit(main())
