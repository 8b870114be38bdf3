"""What discoveryctl doctor judges of the daemon and its host, from values alone."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from discoveryd.client.doctor import answers, containers, inotify, ledgers, peers, units
from discoveryd.client.doctor.findings import Finding, any_wrong, lines_of, note, ok, wrong
from discoveryd.interface import Status
from tests.client import fakes
from tests.client.ctl import EVIL
from tests.client.test_doctor_places import ANN, READER, ROOT, levels, text

PACKAGE = Path(answers.__file__).parent.parent.parent
CARDS = fakes.status()["directories"][0]


def status(**members: Any) -> Status:
    return msgspec.convert(fakes.status(**members), Status)


class TestFindings:
    def test_each_is_a_line_with_its_remedy_below_and_all_are_counted(self) -> None:
        found = [ok("a", "fine"), wrong("b", "bad", "do:", "this"), note("c")]
        assert lines_of(found) == [
            *("ok     a: fine", "wrong  b: bad", "         do:", "         this", "note   c"),
            "1 wrong, 1 note, 1 ok",
        ]
        assert any_wrong(found)
        assert not any_wrong([ok("a"), note("b")])

    def test_nothing_that_is_said_steers_the_terminal(self) -> None:
        assert all(line.isprintable() for line in lines_of([wrong(EVIL, EVIL, EVIL)]))


class TestAnswers:
    def test_a_healthy_daemon_is_in_order(self) -> None:
        found = answers.judge_status(status(standings={"serving": 2}), "0.1.0")
        assert [(each.level, each.what) for each in found] == [
            ("ok", "discoveryd 0.1.0, up 1 h 2 min")
        ]

    def test_another_version_is_noted(self) -> None:
        found = answers.judge_status(status(standings={}), "0.2.0")
        assert levels(found) == ["ok", "note"]
        assert found[1].why == "the daemon is 0.1.0, this discoveryctl 0.2.0"

    def test_cards_that_do_not_serve_are_noted(self) -> None:
        found = answers.judge_status(status(), "0.1.0")
        assert levels(found) == ["ok", "note"]
        assert found[1].remedy[-1] == "discoveryctl explain"

    def test_a_directory_that_is_only_scanned_is_noted(self) -> None:
        polled = {**CARDS, "watching": False, "backend": "polling"}
        found = answers.judge_status(status(directories=[polled], standings={}), "0.1.0")
        assert levels(found) == ["ok", "note"]
        assert "every 5 s only" in found[1].what

    def test_every_problem_is_repeated(self) -> None:
        said = ["of another kind", "the ledger is not kept, so a restart may change answers: x"]
        found = answers.judge_status(status(problems=said, standings={}), "0.1.0")
        assert levels(found) == ["ok", "wrong", "wrong"]
        assert [each.why for each in found[1:]] == said
        assert [bool(each.remedy) for each in found[1:]] == [False, True]

    def test_a_problem_of_a_directory_is_mended_there(self) -> None:
        problem = "in /c d everybody can remove or replace everybody's files. Let only owners do"
        directories = [{**CARDS, "path": "/c d", "problem": problem}, CARDS]
        said = status(directories=directories, problems=[problem], standings={})
        (_, found) = answers.judge_status(said, "0.1.0")
        assert found.remedy == ("sudo chmod +t '/c d'",)

    def test_a_private_temporary_directory_is_let_through(self) -> None:
        problem = "/tmp is this service's own here (PrivateTmp=), so nobody else can"  # noqa: S108 - words
        directories = [{**CARDS, "path": "/tmp/cards", "problem": problem}]  # noqa: S108 - a name
        said = status(directories=directories, problems=[problem], standings={})
        (_, found) = answers.judge_status(said, "0.1.0")
        assert "printf '[Service]\\n%s\\n' PrivateTmp=no | sudo tee" in text([found])

    def test_the_daemon_says_every_phrase_that_has_a_remedy(self) -> None:
        """Its sentences stand in several strings, one after another."""
        sources = [path.read_text() for path in (PACKAGE / "daemon").rglob("*.py")]
        said = re.sub(r'"\s*\n\s*f?"', "", "\n".join(sources))
        for phrase in answers.REMEDIES:
            assert phrase in said, phrase


HOME = peers.Sight(42, READER, (), (("/cards", (1, 2), (1, 2)),), 1024, 30)


class TestTheDaemonsProcess:
    def judged(self, **others: Any) -> list[Finding]:
        return peers.judge_process(HOME._replace(**others), ANN, "/s")

    def test_one_that_sees_what_we_see_is_in_order(self) -> None:
        assert levels(self.judged()) == ["ok", "ok"]

    def test_other_file_systems_with_the_same_directories_are_in_order(self) -> None:
        found = self.judged(foreign=("mnt",))
        assert (levels(found), found[0].why) == (
            ["ok", "ok"],
            "it sees the same drop directories as you",
        )

    @pytest.mark.parametrize(
        ("ours", "theirs", "why"),
        [
            ((1, 2), (1, 3), "the daemon sees another directory there than you do"),
            ((1, 2), None, "the daemon sees none there, though you do"),
            (None, (1, 3), "you see none there, though the daemon does"),
        ],
    )
    def test_another_directory_by_the_same_path_is_wrong(
        self, ours: peers.Place | None, theirs: peers.Place | None, why: str
    ) -> None:
        for path, setting in (("/tmp/c", "PrivateTmp=no"), ("/srv/c", "BindPaths=/srv/c")):  # noqa: S108 - a name
            found = self.judged(foreign=("mnt",), places=((path, ours, theirs),))
            assert levels(found) == ["wrong", "ok"]
            assert found[0].why.startswith(why)
            assert setting in text(found)

    @pytest.mark.parametrize("seen", [{}, {"foreign": None, "places": None}])
    def test_one_that_is_stopped_is_wrong_and_is_let_go_on(self, seen: dict[str, Any]) -> None:
        found = self.judged(stopped=True, **seen)
        assert found[0].level == "wrong"
        assert found[0].remedy == ("sudo kill -CONT 42",)
        assert levels(found[1:]) == levels(self.judged(**seen))

    def test_other_users_and_processes_are_noted(self) -> None:
        found = self.judged(foreign=("mnt", "pid", "user"))
        assert levels(found) == ["ok", "note", "note", "ok"]

    def test_what_may_not_be_seen_is_a_note_and_root_sees_it(self) -> None:
        found = self.judged(foreign=None, places=None, descriptors=None)
        assert levels(found) == ["note"]
        assert found[0].remedy == ("sudo discoveryctl doctor --socket /s",)

    def test_scarce_descriptors_are_wrong(self) -> None:
        found = self.judged(descriptors=1000)
        assert levels(found) == ["ok", "wrong"]
        assert "LimitNOFILE=2048" in text(found)


AMPLE = inotify.Sight(0, True, 10, 8192, 3, 128, 16384)


class TestInotify:
    def test_what_is_far_from_its_limit_is_in_order(self) -> None:
        (found,) = inotify.judge_inotify(AMPLE)
        assert found.level == "ok"
        assert "3 of 128 instances, 10 of 8192 watches" in found.what

    def test_what_may_not_be_counted_is_not_told(self) -> None:
        (found,) = inotify.judge_inotify(AMPLE._replace(seen=False))
        assert (found.level, "3 of" in found.what) == ("ok", False)

    @pytest.mark.parametrize(("used", "level"), [(120, "note"), (128, "wrong"), (200, "wrong")])
    def test_instances_that_run_out_are_told_with_the_limit(self, used: int, level: str) -> None:
        (found,) = inotify.judge_inotify(AMPLE._replace(instances=used))
        assert found.level == level
        assert found.remedy[0] == "sudo sysctl -w fs.inotify.max_user_instances=512"

    def test_a_limit_of_none_is_wrong(self) -> None:
        (found,) = inotify.judge_inotify(AMPLE._replace(watches=0, most_watches=0))
        assert (found.level, "max_user_watches=128" in found.remedy[0]) == ("wrong", True)

    def test_a_short_queue_is_noted(self) -> None:
        (found,) = inotify.judge_inotify(AMPLE._replace(most_events=64))
        assert found.level == "note"


class TestLedger:
    KEPT = ledgers.Sight("/run/.s.ledger", 2048, 999, ())

    def test_the_daemons_own_is_in_order(self) -> None:
        (found,) = ledgers.judge_ledger(self.KEPT, READER)
        assert (found.level, found.why) == ("ok", "2 KiB, of 999")

    def test_somebody_elses_is_wrong(self) -> None:
        (found,) = ledgers.judge_ledger(self.KEPT._replace(uid=4711), READER)
        assert found.level == "wrong"
        assert found.remedy[0] == "sudo chown discoveryd /run/.s.ledger"

    @pytest.mark.parametrize("reader", [None, ROOT])
    def test_whoever_reads_everything_or_is_unknown_is_none_to_judge(self, reader: Any) -> None:
        assert levels(ledgers.judge_ledger(self.KEPT, reader)) == ["ok"]

    def test_one_that_is_elsewhere_is_a_note(self) -> None:
        assert levels(ledgers.judge_ledger(None, READER)) == ["note"]

    def test_what_was_moved_aside_is_noted(self) -> None:
        found = ledgers.judge_ledger(self.KEPT._replace(broken=("/run/b c",)), READER)
        assert (levels(found), found[1].remedy[-1]) == (["ok", "note"], "sudo rm '/run/b c'")


class TestContainers:
    def test_a_host_is_none(self) -> None:
        assert levels(containers.judge_container(containers.Sight(None), found=True)) == ["ok"]

    @pytest.mark.parametrize("found", [True, False])
    def test_a_container_is_a_note_that_says_how_to_reach_the_host(self, found: bool) -> None:
        (finding,) = containers.judge_container(containers.Sight("/.dockerenv"), found=found)
        assert finding.level == "note"
        assert any("docker run -v" in line for line in finding.remedy) is not found
        assert any('{"held": true}' in line for line in finding.remedy)


def shown(service: str = "", socket: str = "") -> units.Units:
    """Return units that run, but for what is said otherwise."""
    runs = "LoadState=loaded\nActiveState=active\nSubState=running\nResult=success\nNRestarts=0\n"
    told = [
        f"Id=discoveryd.service\n{runs}MainPID=77\n{service}\n",
        f"Id=discoveryd.socket\n{runs}{socket}\n",
    ]
    return units.Units(False, units.read_properties("\n".join(told)))


class TestUnits:
    def test_units_that_run_are_in_order(self) -> None:
        found = units.judge_units(shown())
        assert [(each.level, each.what) for each in found] == [
            ("ok", "unit discoveryd.socket"),
            ("ok", "unit discoveryd.service"),
        ]
        assert shown().main_pid == 77

    def test_units_that_are_not_installed_are_none_too_few(self) -> None:
        absent = "LoadState=not-found\nActiveState=inactive\nMainPID=0"
        assert units.judge_units(shown(absent, absent)) == []
        assert shown(absent).main_pid == 0

    @pytest.mark.parametrize(
        "state",
        [
            "ActiveState=failed\nResult=exit-code",
            "ActiveState=activating\nSubState=auto-restart\nResult=exit-code",
            "ActiveState=active\nResult=service-start-limit-hit",
        ],
    )
    def test_a_unit_that_failed_is_wrong_and_the_journal_says_why(self, state: str) -> None:
        (_, found) = units.judge_units(shown(state))
        assert found.level == "wrong"
        assert "sudo journalctl -n 50 -u discoveryd.service" in found.remedy

    def test_a_unit_that_does_not_run_is_noted(self) -> None:
        (found, _) = units.judge_units(shown("", "ActiveState=inactive\nSubState=dead"))
        assert (found.level, found.why) == ("note", "it is inactive (dead)")

    def test_a_unit_that_was_started_again_is_noted(self) -> None:
        (_, found) = units.judge_units(shown("NRestarts=4"))
        assert (found.level, "4 times" in found.why) == ("note", True)

    def test_a_unit_that_cannot_be_read_is_wrong(self) -> None:
        (_, found) = units.judge_units(shown("LoadState=bad-setting\nFragmentPath=/etc/x"))
        assert (found.level, "see /etc/x" in found.why) == ("wrong", True)

    def test_a_users_units_are_asked_as_the_user(self) -> None:
        (_, found) = units.judge_units(shown("ActiveState=failed")._replace(of_user=True))
        assert found.what == "user unit discoveryd.service"
        assert any(line.startswith("systemctl --user restart") for line in found.remedy)

    def test_a_systemd_that_does_not_answer_is_a_note(self) -> None:
        found = units.judge_units(units.Units(True, {}, "Failed to connect to bus"))
        assert (levels(found), found[0].why) == (["note"], "Failed to connect to bus")

    def test_a_setting_for_the_unit_is_one_word_of_a_shell(self) -> None:
        commands = units.drop_in("BindPaths", "/tmp/a b")  # noqa: S108 - a name
        assert "'BindPaths=/tmp/a b'" in commands[1]
        assert commands[1].endswith("discoveryd.service.d/bindpaths.conf")
