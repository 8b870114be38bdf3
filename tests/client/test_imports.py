"""What importing a client costs: each needs what it promises, and nothing else."""

import subprocess
import sys

import pytest

import discoveryd.client

NOTHING_OF = {"click", "rich", "uvloop", "watchfiles", "trio", "discoveryd.daemon"}
NO_LOOP = NOTHING_OF | {"anyio", "asyncio"}


def imported(code: str) -> set[str]:
    """Return the modules that a fresh interpreter has imported after this."""
    told = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return set(told.stdout.split())


def test_the_package_alone_needs_nothing() -> None:
    modules = imported("import discoveryd.client")
    assert not (NO_LOOP | {"msgspec"}) & modules
    assert {name for name in modules if name.startswith("discoveryd")} == {
        "discoveryd",
        "discoveryd.client",
    }


@pytest.mark.parametrize("name", ["Client", "NoDaemon", "NoSuchModel", "Cursor"])
def test_the_blocking_client_needs_no_loop(name: str) -> None:
    modules = imported(f"from discoveryd.client import {name}")
    assert "msgspec" in modules
    assert not NO_LOOP & modules


@pytest.mark.parametrize("name", ["AsyncClient", "Models"])
def test_an_async_client_needs_anyio_and_nothing_else(name: str) -> None:
    modules = imported(f"from discoveryd.client import {name}")
    assert {"anyio", "msgspec"} <= modules
    assert not NOTHING_OF & modules


def test_every_name_that_is_promised_is_there_whatever_is_imported_first() -> None:
    code = """
import discoveryd.client.workers.worker
from discoveryd import client
for name in client.__all__:
    assert callable(getattr(client, name)), name
    assert name in dir(client)
"""
    assert "discoveryd.client.workers.worker" in imported(code)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        getattr(discoveryd.client, "nothing")  # noqa: B009  # as people write it, which mypy refuses
