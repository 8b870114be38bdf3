"""`python -m discoveryd` is the command `discoveryd`."""

import sys

from discoveryd.daemon.cli import main

sys.exit(main())
