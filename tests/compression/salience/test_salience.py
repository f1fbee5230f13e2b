"""What each unit is, whatever the query: on samples as programs write them, and on what must not be taken for one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compression.salience import Salience, read_salience
from compression.segmentation import segment
from compression.source.units import Document, Segmentation, Unit, UnitKind

RETRY = "INFO [IPC] org.apache.hadoop.ipc.Client: Retrying connect to server"
HADOOP = f"""\
2015-10-18 18:01:47,978 INFO [main] org.apache.hadoop.mapred.MapTask: Map output buffer is ready
2015-10-18 18:06:26,465 WARN [Renewer:bob@node-41:90] org.apache.hadoop.LeaseRenewer: Failed to renew lease for [DFS_1]
2015-10-18 18:06:27,465 {RETRY}: node-41:8030. Already tried 0 time(s)
2015-10-18 18:06:28,465 {RETRY}: node-41:8030. Already tried 1 time(s)
2015-10-18 18:06:29,465 {RETRY}: node-42:8030. Already tried 22 time(s)
2015-10-18 18:06:29,466 ERROR [RM] org.apache.hadoop.mapreduce.RMContainerAllocator: ERROR IN CONTACTING RM.
2015-10-18 18:06:30,465 {RETRY}: node-41:8030. Already tried 3 time(s)
"""


def lines(*texts: str, kind: UnitKind = "line") -> Segmentation:
    """Every text a unit, whatever segmentation would make of it."""
    source, units, at = "\n".join(texts), [], 0
    for text in texts:
        units.append(Unit(at, at + len(text), kind, 0, 0))
        at += len(text) + 1
    return Segmentation(source, tuple(units), (Document(0, len(source), (0, len(units)), None),))


def alone(text: str, kind: UnitKind = "line") -> Salience:
    return read_salience(lines(text, kind=kind))


def test_lines_that_differ_in_their_values_have_one_template() -> None:
    found = read_salience(segment(HADOOP))
    retries = [2, 3, 4, 6]
    assert found.is_log.all()
    assert len(set(found.template[retries])) == 1
    assert len(set(found.template.tolist())) == 4
    assert found.template_size.tolist() == [1, 1, 4, 4, 4, 1, 4]
    assert np.flatnonzero(found.is_first).tolist() == [0, 1, 2, 5]
    assert np.flatnonzero(found.is_last).tolist() == [0, 1, 5, 6]


def test_lines_that_differ_in_one_word_of_many_have_one_template() -> None:
    users = ("root", "admin", "guest", "oracle", "test")
    head = "Dec 10 06:55:46 host sshd[24200]: Failed password for invalid user"
    texts = [f"{head} {user} from 5.36.59.76 port 4224{number} ssh2" for number, user in enumerate(users)]
    other = "Dec 10 06:55:48 host sshd[24200]: Connection closed by 5.36.59.76 [preauth]"
    found = read_salience(lines(*texts, other))
    assert found.template_size.tolist() == [5, 5, 5, 5, 5, 1]


def test_two_outcomes_of_one_message_are_two_templates() -> None:
    texts = [f'10.0.0.{n} - - [10/Oct/2000:13:55:36 -0700] "GET /a/{n} HTTP/1.0" {status} 2326'
             for n, status in enumerate((200, 200, 500))]  # fmt: skip
    found = read_salience(lines(*texts))
    assert found.template_size.tolist() == [2, 2, 1]
    assert found.level.tolist() == [0, 0, 0.75]


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("2015-07-29 17:41:44,747 - INFO  [QuorumPeer@774] - Notification", 0.3),
        ("03-17 16:13:38.811  1702  2395 D WindowManager: printFreezingDisplayLogs", 0.15),
        ("03-17 16:13:38.811  1702  2395 E ActivityManager: gone", 0.85),
        ("[Sun Dec 04 04:47:44 2005] [error] mod_jk child workerEnv in state 6", 0.85),
        ("2016-09-28 04:30:30, Info                  CBS    Loaded Servicing Stack", 0.3),
        ("APPREAD 1117869872 2005.06.04 R04 2005-06-04-00.24.32 R04 RAS APP FATAL ciod: read", 1.0),
        ('ts=2020-01-01T00:00:00Z level=warn msg="slow query" took=3s', 0.6),
        ('{"time": "2020-01-01T00:00:00Z", "level": 50, "msg": "gone"}', 0.85),
        ("E1104 12:00:01.123456 123 file.go:12] gone", 0.85),
        ("Jun 14 15:16:01 combo sshd(pam_unix)[19939]: authentication failure; uid=0", 0.7),
        ("2020-01-01 10:00:00 INFO job done, failed=0 errors: 0", 0.3),
    ],
)  # fmt: skip
def test_a_line_is_as_grave_as_it_says(line: str, level: float) -> None:
    kind: UnitKind = "json_member" if line.startswith("{") else "line"
    assert alone(line, kind).level[0] == pytest.approx(level)


@pytest.mark.parametrize(
    "text",
    ["Error: payment method not found", '{"error": "no such order"}', "Process exited with code 137",
     "requests.exceptions.ConnectionError: refused", '"status": 503', "エラー: 見つかりません"],
)  # fmt: skip
def test_what_machines_say_of_a_failure_is_grave_in_any_unit(text: str) -> None:
    assert alone(text, "sentence").level[0] >= 0.75


@pytest.mark.parametrize(
    "text",
    ["The talks failed, and the error was costly.", "He made an exception for her.", '{"error": null}',
     "The status of 503 villages is unknown.", "Nobody panicked at the exit."],
)  # fmt: skip
def test_prose_about_failures_is_not(text: str) -> None:
    assert alone(text, "sentence").level[0] == 0


@pytest.mark.parametrize(
    "text",
    ["---", "=====", "|---|:--|", "[tool_result]", "[/tool_result]", "<tool_result>", "--- begin output ---", "...",
     " 45%|████      | 45/100 [00:12<00:15]", "tests/test_x.py ..........  [ 12%]", "[ 45%] Building CXX object a.o",
     "test parser::reads_a_list ... ok", "tests/test_a.py::test_b PASSED  [ 3%]", "=== RUN   TestX",
     "--- PASS: TestX (0.00s)",
     "✓ adds two numbers (5 ms)", "ok  \texample.com/pkg\t0.012s", "remote: Compressing objects:  93% (28/30)",
     "Page 3 of 12", "Preparing to unpack .../libc6.deb ..."],
)  # fmt: skip
def test_noise_is_told(text: str) -> None:
    assert alone(text.strip()).noise[0]


@pytest.mark.parametrize(
    "text",
    ["--- FAIL: TestX (0.00s)", "tests/test_x.py ....F.....  [ 12%]", "____ test_that_fails ____",
     "3 failed, 5 passed in 0.2s",     "=== 3 failed, 5 passed in 0.20s ===", "test parser::reads ... FAILED",
     "ok", "42", "Turnover grew by 45%.",
     "45% of the members agreed", "[error] disk is full", "- tea", "不", "👍", "x = 1"],
)  # fmt: skip
def test_what_says_something_is_no_noise(text: str) -> None:
    assert not alone(text).noise[0]


def test_signs_of_life_are_noise_until_they_fail() -> None:
    alive = [f"2020-01-01 10:00:0{n} INFO node: heartbeat received from worker-{n}" for n in range(4)]
    found = read_salience(lines(*alive, "2020-01-01 10:00:09 WARN node: heartbeat lost from worker-1"))
    assert found.noise.tolist() == [True] * 4 + [False]


def test_a_rare_line_among_many_alike_changes_the_state() -> None:
    usual = [f"2020-01-01 10:00:{n:02} INFO db: query took {n} ms" for n in range(40)]
    found = read_salience(lines(*usual[:20], "2020-01-01 10:00:20 INFO db: read only now", *usual[20:]))
    assert np.flatnonzero(found.changes_state).tolist() == [20]


def test_a_quotation_repeats_what_it_quotes() -> None:
    texts = (
        "We will refund the fare within five days.",
        "Thank you.",
        "> We will refund  the fare\n> within five days.",
    )
    found = read_salience(lines(*texts, kind="sentence"))
    assert found.copy_of.tolist() == [0, 1, 0]
    assert found.repeats.tolist() == [False, False, True]


def test_prose_is_plain() -> None:
    found = read_salience(
        segment("The harbour was closed. Two ships waited outside.\n\nNobody knew why it took so long.")
    )
    assert found.is_plain
    assert not found.level.any()
    assert (found.template == -1).all()


@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from([*HADOOP.splitlines(), "", "{", "x\x00y", "\ud800", "> a", "a", "٣", "[" * 50, "\r"]),
        max_size=30,
    )
)
def test_any_text_is_read(texts: list[str]) -> None:
    text = segment("\n".join(texts))
    found = read_salience(text)
    for values in (
        found.noise,
        found.level,
        found.template,
        found.template_size,
        found.copy_of,
        found.letters,
    ):
        assert len(values) == len(text.units)
    assert ((found.level >= 0) & (found.level <= 1)).all()
    assert (found.copy_of <= np.arange(len(text.units))).all()
    for number in set(found.template.tolist()) - {-1}:
        own = found.template == number
        assert (found.template_size[own] == own.sum()).all()
        assert found.is_first[own].sum() == 1
        assert found.is_last[own].sum() == 1


def test_the_same_text_is_read_alike() -> None:
    first, second = (read_salience(segment(HADOOP)) for _ in range(2))
    assert first.template.tolist() == second.template.tolist()
    assert first.level.tolist() == second.level.tolist()
