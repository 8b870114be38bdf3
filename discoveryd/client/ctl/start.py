"""Where the program discoveryctl begins: quickly.

What is imported stays for good, so that looking for garbage among it is time lost: about 3 ms of
60. Only what comes later is looked through, and seldom, since most commands are over by then.
"""

import gc
from typing import NoReturn

SELDOM = 50_000
"""How many objects may be made before it is looked for garbage among them."""


def main() -> NoReturn:
    """Be the program discoveryctl."""
    gc.disable()
    from discoveryd.client.ctl.cli import main as be_discoveryctl  # noqa: PLC0415 - the point of it

    gc.freeze()
    gc.set_threshold(SELDOM)
    gc.enable()
    be_discoveryctl()
