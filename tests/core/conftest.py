"""What the tests of the core share."""

import pytest

from tests.core.hosts import PlainHost, RealHost, Told


@pytest.fixture(params=[PlainHost, RealHost], ids=["plain", "real"])
def told(request: pytest.FixtureRequest) -> Told:
    """An empty registry, once the plain one and once the real one."""
    return Told(request.param())
