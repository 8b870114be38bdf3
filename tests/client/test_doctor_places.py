"""What discoveryctl doctor judges of sockets and drop directories, from values alone."""

import os
import stat
from typing import Any

import msgspec
import pytest

from discoveryd.client.asking.locate import Candidate
from discoveryd.client.doctor import directories, sockets
from discoveryd.client.doctor.access import ENTER, READ, WRITE, Entry, Person, refusal
from discoveryd.client.doctor.findings import Finding
from discoveryd.client.doctor.sockets import Peer, Sight
from discoveryd.interface import Status
from tests.client import fakes

ANN = Person(1000, "ann", frozenset((1000, 44)), frozenset((1000, 44, 55)), 0o022)
ROOT = Person(0, "root", frozenset((0,)), frozenset((0,)))
READER = Person(999, "discoveryd", frozenset((999, 44)), frozenset((999, 44)))
STATUS = msgspec.convert(fakes.status(), Status)
NAMED = Candidate("/s/models", "as you said")


def directory(mode: int, uid: int = 0, gid: int = 0, path: str = "/cards") -> Entry:
    return Entry(path, stat.S_IFDIR | mode, uid, gid)


def levels(findings: list[Finding]) -> list[str]:
    return [finding.level for finding in findings]


def text(findings: list[Finding]) -> str:
    """Return everything that is said, on one line for each."""
    return "\n".join(line for each in findings for line in (each.what, each.why, *each.remedy))


class TestModes:
    @pytest.mark.parametrize(
        ("mode", "uid", "gid", "wanted", "may"),
        [
            (0o700, 1000, 0, READ | WRITE | ENTER, True),
            (0o077, 1000, 0, READ, False),
            (0o020, 0, 44, WRITE, True),
            (0o707, 0, 44, READ, False),
            (0o001, 0, 55, ENTER, True),
            (0o004, 0, 0, READ | WRITE, False),
        ],
    )
    def test_the_first_class_that_fits_counts(
        self, mode: int, uid: int, gid: int, wanted: int, may: bool
    ) -> None:
        assert ANN.may(directory(mode, uid, gid), wanted) is may

    def test_root_may_everything(self) -> None:
        assert refusal(ROOT, directory(0, 7, 7), READ | WRITE) is None

    def test_a_group_that_the_session_does_not_have_yet_is_told_apart(self) -> None:
        refused = refusal(ANN, directory(0o770, gid=55), WRITE | ENTER)
        assert refused is not None
        assert refused.listed
        assert "after this login session had begun" in refused.why
        assert refused.remedy == ("log in again, or for one shell:", "newgrp 55")

    def test_a_group_that_the_user_is_not_in_is_proposed(self) -> None:
        refused = refusal(ANN, directory(0o770, gid=66), WRITE | ENTER)
        assert refused is not None
        assert not refused.listed
        assert refused.remedy == ("sudo usermod -aG 66 ann", "and log in again")

    def test_where_no_group_may_the_owner_is_asked(self) -> None:
        refused = refusal(ANN, directory(0o700, uid=4711, path="/c d"), WRITE | ENTER)
        assert refused is not None
        assert "/c d has mode 0700 of 4711:" in refused.why
        assert refused.remedy[1] == "setfacl -m u:ann:wx '/c d'"


def sight(problem: str | None = None, mode: int = 0o666, **others: Any) -> Sight:
    socket = Entry(NAMED.path, stat.S_IFSOCK | mode, 0, 0)
    ways = (directory(0o755, path="/"), directory(0o755, path="/s"))
    found = Sight(NAMED, problem, socket, ways)
    return found._replace(**others)


ABSENT = Sight(NAMED, "there is no such socket")
ANSWERS = sight(peer=Peer(42, 0, 0), status=STATUS)
DENIED = "you may not connect to it (permission denied)"


class TestSockets:
    def test_one_that_answers_is_in_order(self) -> None:
        (found,) = sockets.judge_sockets([ANSWERS], ANN)
        assert (found.level, found.what) == ("ok", "/s/models (as you said)")

    def test_those_before_it_that_are_not_there_are_notes(self) -> None:
        assert levels(sockets.judge_sockets([ABSENT, ANSWERS], ANN)) == ["note", "ok"]

    def test_without_any_it_says_how_to_start_one(self) -> None:
        found = sockets.judge_sockets([ABSENT], ANN)
        assert levels(found) == ["note", "wrong"]
        assert "discoveryd serve --socket /s/models" in found[1].remedy

    def test_the_systems_is_started_as_a_service(self) -> None:
        system = Candidate("/run/discoveryd/io.discoveryd.Models", "the system's")
        found = sockets.judge_sockets([ABSENT._replace(candidate=system)], ANN)
        service = "sudo systemctl enable --now discoveryd.socket discoveryd.service"
        assert service in found[1].remedy

    def test_a_deserted_socket_is_wrong(self) -> None:
        (found,) = sockets.judge_sockets([sight("nobody listens there")], ANN)
        assert found.level == "wrong"
        assert "killed" in found.why

    def test_a_closed_socket_is_opened_by_who_configures_it(self) -> None:
        (found,) = sockets.judge_sockets([sight(DENIED, 0o600)], ANN)
        assert found.level == "wrong"
        assert "mode 0600 of root:root" in found.why
        assert "socket_mode" in found.remedy[0]
        assert found.remedy[-1] == "sudo -u root discoveryctl doctor --socket /s/models"

    def test_a_socket_for_a_group_names_it(self) -> None:
        closed = sight(DENIED)._replace(entry=Entry(NAMED.path, stat.S_IFSOCK | 0o660, 0, 55))
        (found,) = sockets.judge_sockets([closed], ANN)
        assert found.remedy[-1] == "newgrp 55"

    def test_a_directory_in_the_way_is_named(self) -> None:
        ways = (directory(0o755, path="/"), directory(0o700, path="/s"))
        (found,) = sockets.judge_sockets([sight(DENIED, directories=ways, entry=None)], ANN)
        assert "/s has mode 0700 of root:root" in found.why
        assert found.remedy[-1] == "setfacl -m u:ann:x /s"

    def test_a_directory_that_is_not_to_be_trusted_is_always_wrong(self) -> None:
        bad = sight("not to be trusted: /s is not of mode 0700")
        found = sockets.judge_sockets([bad, ANSWERS], ANN)
        assert levels(found) == ["wrong", "ok"]
        assert found[0].remedy[-1] == "chmod 0700 /s"

    def test_one_that_accepts_and_does_not_answer_is_wrong(self) -> None:
        (found,) = sockets.judge_sockets([sight(fault="it did not answer in time")], ANN)
        assert (found.level, found.remedy[-1]) == ("wrong", "sudo ss -xlp src /s/models")

    def test_one_that_is_mounted_without_its_directory_is_wrong(self) -> None:
        found = sockets.judge_sockets([ANSWERS._replace(alone=True)], ANN)
        assert levels(found) == ["ok", "wrong"]
        assert found[1].remedy[-1] == "docker run -v /s:/s:z ..."


def seen(mode: int = 0o1777, **others: Any) -> directories.Sight:
    return directories.Sight("/cards", directory(mode), writable=True)._replace(**others)


def judged(
    found: directories.Sight,
    person: Person = ANN,
    reader: Person | None = READER,
    *,
    followed: bool = True,
) -> list[Finding]:
    return directories.judge_directory(found, person, reader, followed=followed)


def card(name: str, mode: int, uid: int = 1000, gid: int = 1000) -> Entry:
    return Entry(f"/cards/{name}", stat.S_IFREG | mode, uid, gid)


class TestDropDirectories:
    def test_one_that_all_may_use_is_in_order(self) -> None:
        found = judged(seen(cards=3, own=(card("a.json", 0o644),)))
        assert levels(found) == ["ok"]
        assert found[0].why == "you can put cards there; 3 are there, 1 yours"

    def test_one_that_is_missing_is_wrong_only_where_a_daemon_follows_it(self) -> None:
        absent = directories.Sight("/cards", fault="no such file or directory", absent=True)
        assert levels(judged(absent)) == ["wrong"]
        assert levels(judged(absent, followed=False)) == ["note"]

    def test_one_that_cannot_be_looked_at_is_a_note(self) -> None:
        found = judged(directories.Sight("/cards", fault="permission denied"))
        assert levels(found) == ["note"]
        assert "permission denied" in found[0].why

    def test_a_file_is_no_directory(self) -> None:
        assert levels(judged(seen(entry=card("", 0o644)))) == ["wrong"]

    def test_who_only_asks_need_not_write(self) -> None:
        assert levels(judged(seen(0o755, writable=False))) == ["note"]

    def test_who_is_to_write_but_began_his_session_too_early_is_told(self) -> None:
        entry = directory(0o3775, gid=55)
        found = judged(seen(writable=False, entry=entry))
        assert levels(found) == ["wrong"]
        assert found[0].remedy[-1] == "newgrp 55"

    def test_one_that_is_mounted_read_only_is_wrong(self) -> None:
        found = judged(seen(writable=False, read_only=True))
        assert (levels(found), found[0].remedy) == (["wrong"], ("findmnt --target /cards",))

    def test_a_refusal_that_the_mode_does_not_explain_is_a_note(self) -> None:
        assert levels(judged(seen(0o1777, writable=False))) == ["note"]

    def test_one_without_sticky_bit_is_wrong_where_no_daemon_says_it(self) -> None:
        found = judged(seen(0o777), followed=False)
        assert levels(found) == ["ok", "wrong"]
        assert found[1].remedy == ("sudo chmod +t /cards",)
        assert levels(judged(seen(0o777))) == ["ok"]

    def test_a_groups_directory_without_setgid_is_noted(self) -> None:
        found = judged(seen(entry=directory(0o1770, gid=44)))
        assert (levels(found), found[1].remedy) == (["ok", "note"], ("sudo chmod g+s /cards",))
        assert levels(judged(seen(entry=directory(0o3770, gid=44)))) == ["ok"]
        assert levels(judged(seen(entry=directory(0o1775, gid=44)))) == ["ok"]

    def test_own_cards_that_the_daemon_cannot_read_are_named(self) -> None:
        own = [card(f"{number}.json", 0o600) for number in range(7)]
        found = judged(seen(own=(card("fine.json", 0o640, gid=44), *own)))
        assert levels(found) == ["ok", "wrong"]
        assert "cannot read 7 of your cards" in found[1].why
        assert found[1].remedy[0] == "chmod 0644 /cards/0.json"
        assert found[1].remedy[-1] == "and 2 more"

    @pytest.mark.parametrize("reader", [None, ROOT, ANN])
    def test_a_reader_who_reads_everything_or_is_unknown_is_none_to_judge(
        self, reader: Person | None
    ) -> None:
        assert levels(judged(seen(own=(card("a.json", 0o600),)), reader=reader)) == ["ok"]

    def test_a_umask_that_will_hide_cards_is_noted(self) -> None:
        found = judged(seen(), ANN._replace(umask=0o077))
        assert levels(found) == ["ok", "note"]
        assert "umask, 0077" in found[1].why

    def test_mtimes_in_the_future_are_noted_with_who_has_them(self) -> None:
        ahead = (("", 3.0), ("a b.json", 60.0))
        found = judged(seen(ahead=ahead))
        assert levels(found) == ["ok", "note"]
        assert "1 of its cards lies up to 60 s in the future" in found[1].why
        assert found[1].remedy[-1] == "touch '/cards/a b.json'"
        (_, only) = judged(seen(ahead=ahead[:1]))
        assert "the directory itself" in only.why

    def test_a_name_that_is_no_text_is_told_as_the_daemon_tells_it(self) -> None:
        own = (card(os.fsdecode(b"\xff\x1b.json"), 0o600),)
        found = judged(seen(own=own))
        assert "chmod 0644 $'/cards/\\xff\\u001b.json'" in text(found)
