"""Who may connect, as the daemon is told: the socket's mode and group."""

import grp
import os
from pathlib import Path

import pytest

from discoveryd.daemon.configuration.config import Config, configure
from discoveryd.daemon.errors import ConfigError


def told(mode: str | None = None, group: str | None = None, file: str = "") -> Config:
    return configure(
        cards=["/c"],
        socket="/s",
        socket_mode=mode,
        socket_group=group,
        file=file or os.devnull,
        environ={},
        uid=1000,
    )


def test_the_socket_is_private_unless_somebody_says_otherwise() -> None:
    assert (told().socket_mode, told().socket_group) == (0o600, None)
    assert not told().many_users


def test_a_group_that_is_named_may_connect() -> None:
    name = grp.getgrgid(0).gr_name
    assert told(group=name).socket_group == 0
    assert told(group="12345").socket_group == 12345
    assert told(group=name).socket_mode == 0o660
    assert told(group=name).many_users
    assert told(mode="0600", group=name).socket_mode == 0o600


@pytest.mark.parametrize("mode", ["0666", "666", "0o666"])
def test_a_mode_is_octal_however_it_is_written(mode: str) -> None:
    assert told(mode).socket_mode == 0o666
    assert told(mode).many_users


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('socket_mode = "0666"\nsocket_group = "7"\n')
    assert told(file=str(file)).socket_mode == 0o666
    assert told(file=str(file)).socket_group == 7
    assert told("0640", "8", str(file)).socket_mode == 0o640
    assert told("0640", "8", str(file)).socket_group == 8


@pytest.mark.parametrize(
    "mode", ["", "rw", "8", "0888", "-600", "1777", "0600 ", "0x180", "\uff16\uff10\uff10"]
)
def test_what_is_no_mode_is_refused(mode: str) -> None:
    with pytest.raises(ConfigError, match=r"--socket-mode: .* is no mode of a socket; write it"):
        told(mode)


@pytest.mark.parametrize("group", ["", "no-such-group", "-1", "99999999999", "nul\0"])
def test_what_is_no_group_is_refused(group: str) -> None:
    with pytest.raises(ConfigError, match="--socket-group: there is no group"):
        told(group=group)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("socket_mode = 0o600", "socket_mode must be octal digits in quotes"),
        ('socket_mode = "rwx"', "socket_mode: 'rwx' is no mode"),
        ("socket_group = 7", "socket_group must be a group's name or number in quotes"),
        ('socket_group = "nobodies"', "socket_group: there is no group 'nobodies'"),
    ],
)
def test_the_file_is_held_to_the_same(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f"{line}\n")
    with pytest.raises(ConfigError, match=said):
        told(file=str(file))
