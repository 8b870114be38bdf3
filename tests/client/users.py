"""Being another user for a while, in tests that root runs."""

import contextlib
import os
from collections.abc import Iterator

import pytest

NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root is two users")


@contextlib.contextmanager
def nobody() -> Iterator[None]:
    """Be a user without privileges or groups. What is imported meanwhile may not be readable."""
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
