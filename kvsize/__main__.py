"""`python -m kvsize` is the `kvsize` command."""

import sys

from kvsize.cli import main

sys.exit(main())
