"""What an operator sees when the server starts, cannot start, and stops."""

from __future__ import annotations

import os
import re
import socket
import stat
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.integration.running import PITH, ROOT, Server, free_port, stop_server, wait_for, write_config

# How Ray, vLLM, torch and pith call what they leave behind.
OURS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-|vllm|ray$|torchinductor|pith-[a-z0-9_]{8}$")
PITH_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def pith(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*PITH, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=PITH_ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_start_says_what_is_loaded_and_for_how_long(server: Server) -> None:
    text = "".join(server.lines)
    assert re.search(r"\[ *\d+\.\d s\] loading .*pith-mini", text), text
    assert "Traceback" not in text


def test_the_start_names_what_is_slow(server: Server) -> None:
    text = "".join(server.lines)
    # A third, the first token, may be over between two looks.
    for step in ("importing vLLM", "starting the engine"):
        assert re.search(rf"\] loading .*pith-mini \({step}\)", text), text


def test_the_ready_message_has_all_that_a_first_request_needs(server: Server) -> None:
    text = "".join(server.lines)
    assert f"{server.url}/v1" in text
    # It is no terminal that this start wrote to.
    assert server.key not in text
    assert str(server.state_dir / "demo-key") in text


def test_the_curl_of_the_ready_message_works_as_pasted(server: Server) -> None:
    text = "".join(server.lines)
    curl = text[text.index("  curl ") : text.index("Ctrl-C")]
    done = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, timeout=60, check=True)
    assert '"request_cost_usd"' in done.stdout


def test_the_demo_key_is_for_its_owner_alone(server: Server) -> None:
    assert stat.S_IMODE((server.state_dir / "demo-key").stat().st_mode) == 0o600


def test_every_port_is_on_loopback(server: Server) -> None:
    processes = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
    listening = [
        (process.name(), connection.laddr.ip)
        for process in processes
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert not [found for found in listening if found[1] not in ("127.0.0.1", "::1", "::ffff:127.0.0.1")]


def test_the_ingress_and_the_engine_get_as_much_of_a_busy_machine_as_other_programs(server: Server) -> None:
    own = psutil.Process(server.pid)
    found = {process.name(): process.nice() for process in own.children(recursive=True)}
    served = {name: nice for name, nice in found.items() if "ServeReplica" in name or "EngineCore" in name}
    assert len(served) >= 2, found
    assert set(served.values()) == {own.nice()}


def test_an_engine_core_is_forked_since_vllm_wants_the_environment_that_was_foreseen(server: Server) -> None:
    family = psutil.Process(server.pid).children(recursive=True)
    parents = [process.parent() for process in family if "EngineCore" in process.name()]
    assert parents
    assert all(parent is not None and "CoreForks" in parent.name() for parent in parents)


def test_a_used_port_ends_with_one_line_and_exit_code_2(server: Server) -> None:
    done = pith("serve", "--config", str(server.config), "--port", str(server.port))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert str(server.port) in done.stderr


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("models: [", "not valid YAML"),
        ("modelz: 1", "modelz"),
        ("server: {port: high}\nmodels: []", "server.port"),
    ],
)
def test_a_broken_config_ends_with_one_line_and_exit_code_2(tmp_path: Path, text: str, named: str) -> None:
    config = tmp_path / "broken.yaml"
    config.write_text(text)
    done = pith("serve", "--config", str(config))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert named in done.stderr


FAKE = {"engine": {"kind": "fake"}, "capabilities": {}}
ON_GPUS = {**FAKE, "accelerator": {"kind": "gpu", "type": "H100"}}


@pytest.mark.parametrize(
    ("model", "ray", "said"),
    [
        (ON_GPUS, {}, "model:pith-mini has no place: it asks for 1 x 1 GPU of type H100"),
        pytest.param(
            FAKE,
            {"start_limit_s": 0.01},
            "not running after 0.01 s: ingress, pith-mini (ray.start_limit_s)",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_start_that_cannot_come_up_ends_and_says_why(
    tmp_path: Path, model: dict[str, Any], ray: dict[str, Any], said: str
) -> None:
    config = write_config(tmp_path, ingress_replicas=1)
    given = yaml.safe_load(config.read_text())
    given |= {"models": [{**given["models"][0], **model}], "compression": {}}
    given["ray"] |= ray
    config.write_text(yaml.safe_dump(given))
    done = pith("serve", "--config", str(config), "--port", str(free_port()))
    assert done.returncode == 1 and "ready: http" not in done.stdout
    assert said in done.stderr, done.stderr


def test_what_its_processes_share_is_in_a_folder_for_its_owner_alone(server: Server) -> None:
    folder = server.run_folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert folder.is_relative_to(server.state_dir) or folder.parent == Path("/tmp")
    assert (folder / "ray/session_latest/logs").is_dir()
    processes = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
    paths = {
        connection.laddr
        for process in processes
        for connection in process.net_connections("unix")
        if isinstance(connection.laddr, str) and connection.laddr.startswith("/")
    }
    assert paths
    assert not {path for path in paths if not Path(path).is_relative_to(folder)}


@pytest.mark.last
def test_ctrl_c_stops_everything_in_time(server: Server) -> None:
    if server.process is None:
        pytest.skip("this server was started by somebody else")
    started = psutil.Process(server.pid).children(recursive=True)
    stop_server(server)
    assert server.process.returncode == 0
    folder = server.run_folder
    assert not folder.exists()
    assert (server.state_dir / f"logs/{server.port}").is_dir()
    # Another test's may be there for a while.
    wait_for(
        lambda: not [name for name in set(os.listdir("/tmp")) - server.temporary if OURS.match(name)],
        what="nothing is left in the system's temporary folder",
    )
    left = [
        process for process in started if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    ]
    assert not left
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", server.port)) != 0
