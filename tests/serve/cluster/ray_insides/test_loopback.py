"""A cluster of this machine's own does not start where a port of it would be open to others."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import psutil
import pytest

from serve.cluster.ray_insides.ray_serve import (
    CLUSTERS_VARIABLE,
    InsidesChanged,
    PortCheck,
    PortsOpen,
    bind_to_loopback,
    loopback_address,
    refuse_open_ports,
    stay_on_this_machine,
    wrap_grpc_port,
)
from serve.processes.process_setup import children_of_this_process, started_since


def fake_ray(monkeypatch: pytest.MonkeyPatch, **modules: dict[str, Any]) -> None:
    """Modules in the place of Ray's: `_common__tls_utils={…}` is `ray._common.tls_utils`."""
    for name in [name for name in sys.modules if name == "ray" or name.startswith("ray.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    for path, names in modules.items():
        package, _, module = path.partition("__")
        monkeypatch.setitem(sys.modules, f"ray.{package}", ModuleType(f"ray.{package}"))
        made = ModuleType(f"ray.{package}.{module}")
        vars(made).update(names)
        monkeypatch.setitem(sys.modules, f"ray.{package}.{module}", made)
        monkeypatch.setattr(sys.modules[f"ray.{package}"], module, made, raising=False)


def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Where Ray's function is told to listen, after the hook has run, for an address that Ray gives."""
    fake_ray(monkeypatch, _common__tls_utils={"add_port_to_grpc_server": lambda server, address: address})
    bind_to_loopback()
    wrapped = sys.modules["ray._common.tls_utils"].add_port_to_grpc_server
    return lambda address: str(wrapped(None, address))


@pytest.mark.parametrize("address", ["[::]:0", "0.0.0.0:0", "127.0.0.1:0"])
def test_a_port_for_all_interfaces_is_opened_on_loopback(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert opened(monkeypatch)(address) == "127.0.0.1:0"


@pytest.mark.parametrize("address", ["*:0", "10.0.0.4:8000", "unix:/x", "", "[::ffff:0.0.0.0]:1"])
def test_an_address_that_is_not_understood_is_opened_nowhere(address: str) -> None:
    with pytest.raises(InsidesChanged, match="would listen on"):
        loopback_address(address)


def test_where_rays_function_is_gone_the_hook_says_so_and_leaves_the_refusal_to_the_check(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake_ray(monkeypatch, _common__tls_utils={})
    with pytest.raises(InsidesChanged, match="add_port_to_grpc_server is gone"):
        wrap_grpc_port(lambda inner: inner)
    bind_to_loopback()
    assert "add_port_to_grpc_server is gone" in caplog.text


def test_where_it_comes_too_late_the_hook_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake_ray(monkeypatch, _common__tls_utils={"add_port_to_grpc_server": lambda server, address: address})
    monkeypatch.setitem(sys.modules, "ray.serve._private.replica", ModuleType("replica"))
    bind_to_loopback()
    assert "before its ports" in caplog.text


def test_the_start_fails_where_rays_constant_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ray(monkeypatch, _private__ray_constants={})
    with pytest.raises(InsidesChanged, match="ENABLE_RAY_CLUSTER"):
        stay_on_this_machine()


def test_the_start_turns_rays_constant_off_here_and_in_what_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_ray(monkeypatch, _private__ray_constants={"ENABLE_RAY_CLUSTER": True})
    # Put back at the end.
    monkeypatch.setenv(CLUSTERS_VARIABLE, "")
    stay_on_this_machine()
    assert sys.modules["ray._private.ray_constants"].ENABLE_RAY_CLUSTER is False
    assert os.environ[CLUSTERS_VARIABLE] == "0"


def listening_on(host: str) -> socket.socket:
    return socket.create_server((host, 0))


def test_a_child_of_before_the_start_is_not_looked_at() -> None:
    code = "import socket; s = socket.create_server(('0.0.0.0', 0)); print('open', flush=True); input()"
    before = children_of_this_process()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"open\n"
        with pytest.raises(PortsOpen, match="beyond this machine's loopback"):
            refuse_open_ports(started_since(before))
        refuse_open_ports(started_since(children_of_this_process()))
        child.kill()


def test_a_process_that_listens_on_loopback_alone_passes() -> None:
    with listening_on("127.0.0.1"):
        refuse_open_ports([psutil.Process()])


def test_a_replica_whose_hook_did_nothing_fails_its_first_health_check() -> None:
    with listening_on("0.0.0.0") as open_to_all:
        port = open_to_all.getsockname()[1]
        check = PortCheck(on_loopback=True)
        for _ in range(2):
            with pytest.raises(PortsOpen, match=rf"listens on 0\.0\.0\.0:{port}, beyond"):
                check.pass_once()
        PortCheck(on_loopback=True, but_for=[port]).pass_once()
        PortCheck(on_loopback=False).pass_once()
    check.pass_once()
    with listening_on("0.0.0.0"):
        # It has passed: what a process opens for its work later is its own.
        check.pass_once()
