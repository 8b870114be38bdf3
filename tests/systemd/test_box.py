"""Where no box can be had the reason is told: what tested nothing must not look as if it passed."""

import os
import shutil
from pathlib import Path

import pytest

from tests.systemd import box as boxes


def test_a_machine_without_the_tools_is_told_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(boxes.CannotBoot, match="not installed: debootstrap, systemd-nspawn, "):
        boxes.check_tools()


def test_a_user_who_is_not_root_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(boxes.CannotBoot, match="root"):
        boxes.check_tools()


@pytest.mark.skipif(
    os.geteuid() != 0 or any(shutil.which(tool) is None for tool in boxes.TOOLS),
    reason="NOT TESTED: booting a box needs root and the tools",
)
def test_what_does_not_boot_is_told_with_its_last_words(tmp_path: Path) -> None:
    empty = tmp_path / "root"
    empty.mkdir()
    with (
        pytest.raises(boxes.CannotBoot, match=r"(?s)does not boot.*OS"),
        boxes.booted(empty, {}, tmp_path / "console"),
    ):
        pytest.fail("an empty directory has booted")
