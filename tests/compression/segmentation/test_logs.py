"""Logs in the formats that programs write: a line is a unit, and what stands under it belongs to it."""

from __future__ import annotations

import pytest

from compression.segmentation import segment

LINES = """\
081109 203518 143 INFO dfs.DataNode$DataXceiver: Receiving block blk_-16 src: /10.250.19.102:54106
2015-10-18 18:01:47,978 INFO [main] org.apache.hadoop.mapreduce.v2.app.MRAppMaster: Created
17/06/09 20:10:40 INFO executor.CoarseGrainedExecutorBackend: Registered signal handlers
[Sun Dec 04 04:47:44 2005] [notice] workerEnv.init() ok
2015-07-29 17:41:44,747 - INFO  [QuorumPeer[myid=1]/0:0:0:0:0:0:0:0:2181:FastLeaderElection@774] - Notification
- 1117838570 2005.06.03 R02-M1 2005-06-03-15.42.50.675872 R02-M1 RAS KERNEL INFO instruction cache parity error
APPREAD 1117869872 2005.06.04 R04-M1 2005-06-04-00.24.32.432192 R04 RAS APP FATAL ciod: failed to read
03-17 16:13:38.811  1702  2395 D WindowManager: printFreezingDisplayLogs
Jun 14 15:16:01 combo sshd(pam_unix)[19939]: authentication failure; logname= uid=0
20171223-22:15:29:606|Step_LSC|30002312|onStandStepChanged 3579
2016-09-28 04:30:30, Info                  CBS    Loaded Servicing Stack
[10.30 16:49:06] chrome.exe - proxy.example.edu:5070 open through proxy
nova-api.log.1.2017-05-16_13:53:08 2017-05-16 00:00:00.008 25746 INFO nova.wsgi [req-38] GET
I1104 12:00:01.123456 123 file.go:12] started
E/Tag( 123): gone
[    0.000000] Linux version 6.1
level=info ts=2020-01-01T00:00:00Z msg="started"
time="2020-01-01T00:00:00Z" level=info msg="hello"
api_1  | 2020-01-01 10:00:00 listening
12345:M 01 Jan 2020 12:00:00.000 * Ready to accept connections
<34>Oct 11 22:14:15 mymachine su: 'su root' failed
192.168.1.1 - frank [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2326
INFO:root:started
info 06.08.2011 03:51:49 CBS loaded
02-Jan-2006 15:04:05.123 INFO started"""
PROSE = """\
On 3 May 2020 the committee met at 10:00, and it went on till noon.
Error handling is hard, and most of us get it wrong.
INFORMATION was scarce in those days.
1234567890 is the number that they called.
12.05 per cent of the members agreed to it.
2020-01-01 is a date like any other."""
ENTRY = """\
2020-01-01 10:00:00 ERROR app: job failed
Traceback (most recent call last):
  File "app.py", line 3, in run
    work()
ValueError: no such job"""


@pytest.mark.parametrize("line", LINES.splitlines())
def test_three_lines_of_a_format_are_three_units(line: str) -> None:
    found = segment("\n".join([line] * 3))
    assert [(found.text(n), unit.kind) for n, unit in enumerate(found.units)] == [(line, "line")] * 3


@pytest.mark.parametrize("line", PROSE.splitlines())
def test_prose_with_a_date_or_a_level_is_no_log(line: str) -> None:
    assert {unit.kind for unit in segment("\n".join([line] * 3)).units} == {"sentence"}


def test_a_stack_trace_belongs_to_its_entry() -> None:
    before, after = "2020-01-01 09:59:00 INFO app: job started", "2020-01-01 10:00:01 INFO app: next job"
    found = segment(f"{before}\n{ENTRY}\n{after}\n")
    assert [found.text(n) for n in range(len(found.units))] == [before, ENTRY, after]


def test_of_a_long_trace_the_first_frames_stay_with_the_entry_and_the_error_with_the_last() -> None:
    frames = "".join(
        f'  File "/srv/app/module_{n}.py", line {n}, in call_{n}\n    call_{n + 1}()\n' for n in range(30)
    )
    entry = ENTRY.replace('  File "app.py", line 3, in run\n    work()\n', frames)
    found = segment(
        f"2020-01-01 09:59:00 INFO app: job started\n{entry}\n2020-01-01 10:00:01 INFO app: next job\n"
    )
    pieces = [found.text(n) for n in range(len(found.units))]
    assert pieces[1].startswith("2020-01-01 10:00:00 ERROR app: job failed\nTraceback")
    last = pieces[-2]
    assert last.endswith("ValueError: no such job")
    assert "call_29" in last
    assert max(map(len, pieces)) <= 500


def test_of_a_java_trace_the_exception_stays_with_the_frames_nearest_to_it() -> None:
    frames = "".join(f"\tat org.example.module{n}.Worker.call(Worker.java:{n})\n" for n in range(20))
    found = segment(
        f"java.lang.IllegalStateException: closed\n{frames}Caused by: java.io.IOException: gone\n{frames}"
    )
    pieces = [found.text(n) for n in range(len(found.units))]
    assert pieces[0].startswith("java.lang.IllegalStateException: closed\n\tat org.example.module0.")
    assert any(
        piece.startswith("Caused by: java.io.IOException: gone\n\tat org.example.module0.")
        for piece in pieces
    )


def test_a_log_with_empty_lines_here_and_there_is_no_thread_of_entries() -> None:
    lines = [
        f"[2026-11-22 01:01:{n:02},247 I 32601] worker.cc:{n}: Reporting events, took {n}ms"
        for n in range(20)
    ]
    stats = "Event stats:\n\n\nGlobal stats: 6 total (4 active)\nQueueing time: mean = 0.03ms, max = 0.14ms\n"
    source = "\n".join([*lines[:5], stats, *lines[5:12], stats, *lines[12:]])
    found = segment(source)
    kinds = {found.text(number): unit.kind for number, unit in enumerate(found.units)}
    assert all(kinds.get(line) == "line" for line in lines if line != lines[4] and line != lines[11])
    assert not found.frames


def test_dated_entries_of_a_ticket_stay_entries_beside_a_pasted_log() -> None:
    log = "\n".join(f"2026-03-02T09:12:{n:02}Z ERROR export: timed out after {n} s" for n in range(30))
    told = "The export of the quarter times out for every one of us. " * 4
    heads = ("[2026-03-02 09:14] Dana", "[2026-03-02 10:20] Tomas", "[2026-03-03 08:00] Dana")
    assert len(segment("\n\n".join(f"{head}\n\n{told}\n\n{log}" for head in heads)).documents) == 3
