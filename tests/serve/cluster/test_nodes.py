"""What is asked of the nodes of a cluster before a start, on this machine's loopback and without Ray."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from serve.cluster.nodes import Code, Marks, NodeProbe, code_in, differences, marks_of
from tests.serve.cluster.ports import neighbours

HERE = "127.0.0.1"
CODE = Code("0.1.0", "0123456789abcdef", Path("/srv/a"))
OWN = Marks(CODE, "pepper")


@contextmanager
def probe() -> Iterator[NodeProbe]:
    made = NodeProbe(HERE)
    try:
        yield made
    finally:
        for one in made.listening:
            one.close()


def test_a_node_listens_at_both_ends_of_the_ports_of_replicas_and_is_reached() -> None:
    first, last = neighbours(2)
    with probe() as there, probe() as here:
        listening = there.listen((first, last))
        assert [port for _, port in listening] == [first, last]
        assert here.unreachable(listening) == []


def test_a_node_listens_on_any_port_where_none_is_named() -> None:
    with probe() as there, probe() as here:
        (listening,) = there.listen(None)
        assert here.unreachable([listening]) == []


def test_a_port_that_is_closed_is_named_with_its_node() -> None:
    with socket.create_server((HERE, 0)) as server:
        closed = server.getsockname()
        open_port = socket.create_server((HERE, 0))
    with open_port:
        (problem,) = NodeProbe(HERE).unreachable([open_port.getsockname(), closed])
    assert problem.startswith(f"{HERE}:{closed[1]} (") and "refused" in problem


def test_a_node_without_a_free_port_says_so() -> None:
    with socket.create_server((HERE, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"no port of {HERE} is free from {port} to {port}"):
            NodeProbe(HERE).listen((port, port))


def test_a_node_with_other_code_or_another_secret_is_named() -> None:
    elsewhere = replace(CODE, folder=Path("/srv/b"))
    others = {
        "a": Marks(elsewhere, "pepper"),
        "b": Marks(replace(elsewhere, version="0.0.9", digest="fedcba9876543210"), "pepper"),
        "c": Marks(CODE, "other"),
        "d": Marks(CODE, None),
    }
    of_b, of_c, of_d = differences(OWN, others, Path("var"))
    assert of_b == (
        "node b has pith 0.0.9 (SHA-256 fedcba987654) in /srv/b, and this machine pith 0.1.0 (SHA-256 0123456789ab) "
        "in /srv/a: install the same wheel on both"
    )
    assert of_c.startswith("node c has another var/pepper") and of_d.startswith("node d has no var/pepper")


def test_code_is_the_same_wherever_it_is_until_any_of_its_files_differs(tmp_path: Path) -> None:
    here, there = tmp_path / "checkout", tmp_path / "site-packages"
    for root in (here, there):
        (root / "compression/weights").mkdir(parents=True)
        (root / "compression/weights/a.npz").write_bytes(b"weights")
        (root / "compression/a.py").write_text("a = 1")
    (there / "compression/__pycache__").mkdir()
    (there / "compression/__pycache__/a.pyc").write_bytes(b"compiled")
    (there / "another_package.py").touch()
    assert code_in(here) == code_in(there)
    (there / "compression/weights/a.npz").write_bytes(b"others")
    assert code_in(here) != code_in(there)


def test_the_marks_of_a_machine_are_those_of_its_code_and_its_secret(tmp_path: Path) -> None:
    without = marks_of(tmp_path)
    assert without.pepper is None
    (tmp_path / "pepper").write_bytes(b"p" * 32)
    found = marks_of(tmp_path)
    assert found.pepper is not None and "p" * 8 not in found.pepper and found.code == without.code
    (tmp_path / "pepper").write_bytes(b"q" * 32)
    assert marks_of(tmp_path).pepper != found.pepper
