"""Settings where systemd passes the socket in, and says where the configuration is."""

from pathlib import Path
from typing import Any

import pytest

from discoveryd.daemon.configuration.config import Config, configure
from discoveryd.daemon.errors import ConfigError

USER = 4711
PASSED = "/run/discoveryd/io.discoveryd.Models"


def told(environ: dict[str, str] | None = None, **settings: object) -> Config:
    return configure(
        passed_socket=PASSED,
        passed_mode=0o666,
        environ=environ or {},
        uid=USER,
        **settings,  # type: ignore[arg-type]  # as each test means them
    )


def test_the_drop_directory_is_beside_it_and_nothing_is_made() -> None:
    config = told()
    assert (config.socket, config.socket_mode, config.socket_group) == (PASSED, 0o666, None)
    assert config.cards == ("/run/discoveryd/cards",)
    assert config.place is None
    assert config.many_users


def test_what_environment_and_file_say_of_the_socket_is_overridden(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('socket = "/x"\nsocket_mode = "0600"\nsocket_group = "0"\ncards = ["/c"]\n')
    config = told({"DISCOVERYD_SOCKET": "/y"}, file=str(file))
    assert (config.socket, config.socket_mode, config.socket_group) == (PASSED, 0o666, None)
    assert config.cards == ("/c",)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"socket": "/x"}, f"--socket names /x, but the socket {PASSED} was passed in"),
        (
            {"socket_mode": "0600"},
            "--socket-mode cannot change .* set SocketMode= in the socket unit",
        ),
        (
            {"socket_group": "0"},
            "--socket-group cannot change .* set SocketGroup= in the socket unit",
        ),
    ],
)
def test_flags_that_speak_of_another_socket_are_refused(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        told(**flags)


def test_the_flag_may_name_the_same_socket() -> None:
    assert told(socket=PASSED).socket == PASSED


def test_the_configuration_is_where_systemd_says(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("quota = 5\n")
    environ = {"CONFIGURATION_DIRECTORY": f"{tmp_path}/:/etc/other", "HOME": "/nowhere"}
    assert told(environ).quota == 5
    assert configure(environ=environ, uid=0).quota == 5
    assert told({"CONFIGURATION_DIRECTORY": "relative"}).quota is None
    named = tmp_path / "named.toml"
    named.write_text("quota = 6\n")
    assert told(environ, file=str(named)).quota == 6


def test_a_working_directory_that_is_gone_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="--cards: cards starts at the working directory, which"):
        told(cards=["cards"])
    assert told(cards=["/c"]).cards == ("/c",)
