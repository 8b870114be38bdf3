"""What the daemon is told, and by whom: flags over environment over file over defaults."""

import os
import re
from pathlib import Path

import pytest

from discoveryd.core.places import SYSTEM_PLACE, Place
from discoveryd.daemon.configuration.config import configure
from discoveryd.daemon.directories import make_place
from discoveryd.daemon.errors import ConfigError, StartError
from discoveryd.daemon.permit.allowing import Allow

USER = 1000
TEMPORARY = "/tmp/discoveryd-1000"  # noqa: S108 - checked before use: see below
SOCKET = "io.discoveryd.Models"


@pytest.fixture(autouse=True)
def system_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep this host's own configuration out."""
    file = tmp_path / "etc.toml"
    monkeypatch.setattr("discoveryd.daemon.configuration.file.SYSTEM_FILE", str(file))
    return file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


# Defaults


@pytest.mark.parametrize(
    ("uid", "environ", "directory"),
    [
        (0, {"XDG_RUNTIME_DIR": "/run/user/0"}, "/run/discoveryd"),
        (USER, {"XDG_RUNTIME_DIR": "/run/user/1000"}, "/run/user/1000/discoveryd"),
        (USER, {}, TEMPORARY),
        (USER, {"XDG_RUNTIME_DIR": ""}, TEMPORARY),
        (USER, {"XDG_RUNTIME_DIR": "relative"}, TEMPORARY),
        (USER, {"TMPDIR": "/scratch/"}, "/scratch/discoveryd-1000"),
    ],
)
def test_without_any_word_both_places_are_in_the_default_directory(
    uid: int, environ: dict[str, str], directory: str
) -> None:
    told = configure(environ=environ, uid=uid)
    assert told.cards == (f"{directory}/cards",)
    assert told.socket == f"{directory}/{SOCKET}"
    assert told.dynamo == ()
    assert told.place is not None
    assert told.place.directory == directory
    assert told.default_socket
    assert told.log_level == "info"


def test_where_a_store_is_named_there_is_no_default_drop_directory() -> None:
    told = configure(dynamo=["/store"], environ={}, uid=USER)
    assert (told.cards, told.dynamo) == ((), ("/store",))
    assert told.default_socket


def test_where_everything_is_named_the_default_place_is_not_touched() -> None:
    told = configure(cards=["/cards"], socket="/x/socket", environ={}, uid=USER)
    assert told.place is None
    assert not told.default_socket


# Who wins


def test_flags_win_over_environment_over_file(file: Path) -> None:
    file.write_text('cards = ["/file"]\nsocket = "/file/s"\nlog_level = "error"\n')
    environ = {"DISCOVERYD_CARDS": "/env", "DISCOVERYD_SOCKET": "/env/s"}
    by_file = configure(file=str(file), environ={}, uid=USER)
    by_environ = configure(file=str(file), environ=environ, uid=USER)
    by_flags = configure(
        cards=["/flag"],
        socket="/flag/s",
        log_level="DEBUG",
        file=str(file),
        environ=environ,
        uid=USER,
    )
    assert (by_file.cards, by_file.socket, by_file.log_level) == (("/file",), "/file/s", "error")
    assert (by_environ.cards, by_environ.socket) == (("/env",), "/env/s")
    assert (by_flags.cards, by_flags.socket, by_flags.log_level) == (
        ("/flag",),
        "/flag/s",
        "debug",
    )


def test_the_environment_lists_several_directories() -> None:
    told = configure(environ={"DISCOVERYD_CARDS": "/a:/b::/a"}, uid=USER)
    assert told.cards == ("/a", "/b")


def test_empty_variables_say_nothing() -> None:
    told = configure(environ={"DISCOVERYD_CARDS": "", "DISCOVERYD_SOCKET": ""}, uid=0)
    assert told.cards == ("/run/discoveryd/cards",)
    assert told.socket == f"/run/discoveryd/{SOCKET}"


def test_a_user_s_own_file_is_read_where_it_exists(tmp_path: Path) -> None:
    for directory, variable in (("conf", "XDG_CONFIG_HOME"), ("home/.config", "HOME")):
        place = tmp_path / directory / "discoveryd"
        place.mkdir(parents=True)
        (place / "config.toml").write_text(f'cards = ["/{variable}"]\n')
    home = {"HOME": str(tmp_path / "home")}
    assert configure(environ=home, uid=USER).cards == ("/HOME",)
    both = {**home, "XDG_CONFIG_HOME": str(tmp_path / "conf")}
    assert configure(environ=both, uid=USER).cards == ("/XDG_CONFIG_HOME",)


def test_root_s_file_is_the_system_s(system_file: Path) -> None:
    system_file.write_text('cards = ["/system"]')
    assert configure(environ={}, uid=0).cards == ("/system",)
    assert configure(environ={}, uid=USER).cards != ("/system",)


# Paths


def test_a_directory_named_twice_is_one() -> None:
    told = configure(cards=["/a", "/a/", "/a/.", "/b"], environ={}, uid=USER)
    assert told.cards == ("/a", "/b")


def test_relative_paths_start_at_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = configure(cards=["examples/cards"], environ={"DISCOVERYD_SOCKET": "s"}, uid=USER)
    assert told.cards == (f"{tmp_path}/examples/cards",)
    assert told.socket == f"{tmp_path}/s"


def test_relative_paths_in_a_file_start_at_the_file(file: Path) -> None:
    file.write_text('cards = ["cards"]\ndynamo = ["store"]\nsocket = "s"\n')
    told = configure(file=str(file), environ={}, uid=USER)
    assert told.cards == (f"{file.parent}/cards",)
    assert told.dynamo == (f"{file.parent}/store",)
    assert told.socket == f"{file.parent}/s"


# Faults


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("card = []", "unknown key 'card'; did you mean 'cards'"),
        ("log-level = 'info'", "unknown key 'log-level'; did you mean 'log_level'"),
        ("quux = 1", "unknown key 'quux'; there are cards, dynamo"),
        ("cards = '/srv'", "cards must be a list of directories"),
        ("cards = [1]", "cards must be a list of directories"),
        ("dynamo = {}", "dynamo must be a list of stores"),
        ("socket = []", "socket must be a path"),
        ("socket = ''", "socket: '' is no path"),
        ("aliases = []", "aliases must be a table"),
        ("log_level = 'loud'", "log_level: 'loud' is no level; there are debug, info"),
        ("cards = [", "is not TOML"),
        (f"quota = {'9' * 5000}", "is not TOML"),
        ("[aliases]\na = 'a'", "'a' stands for itself"),
        ("[aliases]\na = 'b'\nb = 'c'", "which is an alias itself: name its model, 'c'"),
        ("[aliases]\na = ''", "the name '' is empty"),
        ("[aliases]\n'' = 'a'", "the name '' is empty"),
        ('[aliases]\n"a\\nb" = "c"', "has control characters"),
        (f"[aliases]\na = '{'ü' * 257}'", "is longer than 512 bytes"),
        ("allow = 1", "allow must be tables, each headed [[allow]]"),
        ("[[allow]]\nname = ['m']", "[[allow]] 1: Object contains unknown field `name`"),
        ("[[allow]]\nuser = 0\n[[allow]]", "[[allow]] 2 says nothing"),
        ("owner = 'gid'", 'owner must be "uid", or left out'),
        ("quota = 0", 'quota must be a number from 1, or "none"'),
        ("quota = 'some'", 'quota must be a number from 1, or "none"'),
        ("follow_symlinks = 1", "follow_symlinks must be true or false"),
    ],
)
def test_a_faulty_file_is_refused_with_the_fault(file: Path, content: str, complaint: str) -> None:
    file.write_text(content)
    with pytest.raises(ConfigError) as caught:
        configure(file=str(file), environ={}, uid=USER)
    assert str(file) in str(caught.value)
    assert complaint in str(caught.value)


def test_a_file_that_is_not_utf8_is_refused(file: Path) -> None:
    file.write_bytes(b"socket = '\xff'")
    with pytest.raises(ConfigError, match="is not UTF-8: see byte 10"):
        configure(file=str(file), environ={}, uid=USER)


def test_a_named_file_must_be_there(file: Path) -> None:
    with pytest.raises(ConfigError, match="there is no configuration file"):
        configure(file=str(file), environ={}, uid=USER)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the configuration file"):
        configure(file=str(tmp_path), environ={}, uid=USER)


def test_the_operator_s_aliases_are_read(file: Path) -> None:
    file.write_text('[aliases]\n"gpt-4o" = "llama-3.1-8b"\n"模型" = "llama-3.1-8b"\n')
    told = configure(file=str(file), environ={}, uid=USER)
    assert told.aliases == {"gpt-4o": "llama-3.1-8b", "模型": "llama-3.1-8b"}


# Who may claim what


@pytest.mark.parametrize(
    ("flag", "written", "given", "expected"),
    [
        (None, None, None, "/run/place/.s.ledger"),
        (None, None, "", "/run/place/.s.ledger"),
        (None, None, "/var/lib/d", "/var/lib/d/ledger"),
        (None, None, "/var/lib/d:/var/lib/e", "/var/lib/d/ledger"),
        (None, "/w", "/var/lib/d", "/w"),
        (None, "w", None, "{file}/w"),
        (None, "none", "/var/lib/d", None),
        ("/f", "/w", "/var/lib/d", "/f"),
        ("none", "/w", None, None),
        ("./none", None, None, "{cwd}/none"),
    ],
)
def test_the_ledger_is_where_it_is_named_else_systemds_else_beside_the_socket(
    file: Path, flag: str | None, written: str | None, given: str | None, expected: str | None
) -> None:
    file.write_text("" if written is None else f'state = "{written}"')
    environ = {} if given is None else {"STATE_DIRECTORY": given}
    told = configure(socket="/run/place/s", state=flag, file=str(file), environ=environ, uid=USER)
    if expected is not None:
        expected = expected.format(file=file.parent, cwd=Path.cwd())
    assert told.state == expected


def test_without_any_word_everybody_may_claim_everything() -> None:
    told = configure(environ={}, uid=USER)
    assert (told.allow, told.by_owner, told.quota, told.follow_symlinks) == ((), False, None, False)


def test_what_the_operator_allows_is_read(file: Path) -> None:
    file.write_text(
        'cards = ["ann", "shared"]\nowner = "uid"\nquota = 5\nfollow_symlinks = true\n'
        '[[allow]]\nuser = "root"\n[[allow]]\ndirectory = "ann"\nurls = ["http://127.0.0.1:*"]\n'
    )
    told = configure(file=str(file), environ={}, uid=USER)
    assert told.allow == (
        Allow(user=0),
        Allow(directory=f"{file.parent}/ann", urls=("http://127.0.0.1:*",)),
    )
    assert (told.by_owner, told.quota, told.follow_symlinks) == (True, 5, True)


def test_a_quota_can_be_done_without(file: Path) -> None:
    file.write_text('quota = "none"')
    told = configure(file=str(file), environ={}, uid=USER)
    assert told.quota is not None
    assert told.quota > 1_000_000_000


def test_a_tenants_directory_must_be_one_that_is_followed(file: Path) -> None:
    file.write_text('cards = ["ann"]\n[[allow]]\ndirectory = "ben"\n')
    with pytest.raises(ConfigError, match=r"\[\[allow\]\] 1: /.*/ben is no directory"):
        configure(file=str(file), environ={}, uid=USER)
    told = configure(file=str(file), cards=[f"{file.parent}/ben"], environ={}, uid=USER)
    assert told.cards == (f"{file.parent}/ben",)


# The default directory


def place_in(parent: Path, *, public: bool = True) -> Place:
    return Place(str(parent / "discoveryd-here"), public_parent=public)


def mode(path: str) -> int:
    return Path(path).stat().st_mode & 0o7777


def test_the_default_directory_is_made_private(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    make_place(place, os.getuid())
    assert (mode(place.directory), mode(place.cards)) == (0o700, 0o700)
    make_place(place, os.getuid())


def test_the_system_s_directory_may_be_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = SYSTEM_PLACE._replace(directory=str(tmp_path / "discoveryd"))
    monkeypatch.setattr("discoveryd.daemon.directories.SYSTEM_PLACE", system)
    before = os.umask(0o022)
    make_place(system, 0)
    os.umask(before)
    assert (mode(system.directory), mode(system.cards)) == (0o755, 0o755)


def test_a_directory_that_others_can_enter_is_refused_in_public(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    Path(place.directory).mkdir()
    Path(place.directory).chmod(0o755)
    with pytest.raises(StartError, match="has mode 0755 instead of 0700"):
        make_place(place, os.getuid())
    assert list(Path(place.directory).iterdir()) == []


def test_somebody_else_s_directory_is_refused_in_public(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    Path(place.directory).mkdir(0o700)
    with pytest.raises(StartError, match=f"belongs to the user {os.getuid()}"):
        make_place(place, os.getuid() + 1)


def test_a_link_is_refused_in_public(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    (tmp_path / "elsewhere").mkdir(0o700)
    Path(place.directory).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartError, match="is no directory"):
        make_place(place, os.getuid())
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_default_directory_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"cannot make .*: No such file.*--cards and --socket"):
        make_place(place_in(tmp_path / "missing", public=False), os.getuid())


# HTTP


def test_http_is_answered_nowhere_unless_somebody_says_so() -> None:
    assert configure(environ={}, uid=USER).http is None


@pytest.mark.parametrize(
    ("told", "meant"),
    [
        ("127.0.0.1:8000", "127.0.0.1:8000"),
        ("127.1.2.3:1", "127.1.2.3:1"),
        ("localhost:65535", "127.0.0.1:65535"),
        ("[::1]:8000", "[::1]:8000"),
        ("/run/http", "/run/http"),
        ("/run/a:80", "/run/a:80"),
    ],
)
def test_http_is_at_a_path_or_at_an_address_of_loopback(told: str, meant: str) -> None:
    assert configure(http=told, environ={}, uid=USER).http == meant


@pytest.mark.parametrize(
    "told", ["0.0.0.0:80", "10.0.0.1:80", "[::]:80", "gpu-1:80", ":80", "127.0.0.1:0", "::1:99999"]
)
def test_http_is_listened_at_nowhere_else(told: str) -> None:
    with pytest.raises(ConfigError, match=f"--http: {re.escape(told)} is no address of loopback"):
        configure(http=told, environ={}, uid=USER)


@pytest.mark.parametrize("told", ["127.0.0.1", "9475", "localhost", "127.0.0.1:", "[::1]", "none"])
def test_half_an_address_for_http_is_no_path(told: str) -> None:
    with pytest.raises(ConfigError, match=f"--http: {re.escape(told)} is no address with a port"):
        configure(http=told, environ={}, uid=USER)
    assert configure(http=f"./{told}", environ={}, uid=USER).http == str(Path(told).absolute())


def test_the_file_says_where_http_is_and_the_flag_wins(file: Path) -> None:
    file.write_text('http = "h"\n')
    assert configure(file=str(file), environ={}, uid=USER).http == str(file.parent / "h")
    told = configure(http="127.0.0.1:1", file=str(file), environ={}, uid=USER)
    assert told.http == "127.0.0.1:1"


def test_http_and_the_socket_are_not_at_one_path() -> None:
    with pytest.raises(ConfigError, match="both at /s: name another path"):
        configure(socket="/s", http="/s", environ={}, uid=USER)
