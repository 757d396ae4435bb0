"""The wheel and the source distribution, as they would be published."""

import ast
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from gamecast.version import __version__

ROOT = Path(__file__).parents[2]
SMOKE = ROOT / "tests" / "acceptance" / "wheel_smoke.py"
FOLDERS = (*("adapters", "analytics", "cli", "demo", "gateway", "launcher", "loadtest", "placement", "sequencing"),)
OF_LABORATORY = ("classic", "laboratory")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The contents of the wheel that is built straight from the tree."""
    return build(tmp_path_factory.mktemp("straight"), "--wheel")


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The contents of the wheel of gamecast-lab."""
    return build(tmp_path_factory.mktemp("laboratory"), "--wheel", of=ROOT / "laboratory")


def build(directory: Path, *options: str, of: Path = ROOT) -> dict[str, bytes]:
    command: list[str | Path] = [sys.executable, "-m", "build", "--no-isolation", "--outdir", directory, *options, of]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = directory.glob("*.whl")
    with ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_owns_one_top_level_name(wheel: dict[str, bytes]) -> None:
    top_level = {name.partition("/")[0] for name in wheel}
    (metadata,) = top_level - {"gamecast"}
    assert metadata.startswith("gamecast-")
    assert metadata.endswith(".dist-info")


def test_the_wheel_carries_every_file_of_the_tree(wheel: dict[str, bytes]) -> None:
    folders = {"gamecast": "", **dict.fromkeys(FOLDERS, "gamecast/")}
    expected = {
        f"{above}{file.relative_to(ROOT).as_posix()}"
        for folder, above in folders.items()
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    stand_ins = {f"gamecast/{name}.py" for name in ("analytics", "classic", "gateway", "loadtest")}  # for folders
    expected -= stand_ins
    assert not stand_ins & wheel.keys()
    assert expected <= wheel.keys()
    assert "gamecast/py.typed" in expected


def test_that_of_the_laboratory_has_its_folders_and_shares_no_file_with_it(
    wheel: dict[str, bytes], laboratory: dict[str, bytes]
) -> None:
    expected = {
        f"gamecast/{file.relative_to(ROOT).as_posix()}"
        for folder in OF_LABORATORY
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    expected.remove("gamecast/laboratory/pyproject.toml")
    has = {name for name in laboratory if name.startswith("gamecast/")}
    assert has == expected
    assert not has & wheel.keys()
    (metadata,) = (text.decode() for name, text in laboratory.items() if name.endswith(".dist-info/METADATA"))
    assert f"\nRequires-Dist: gamecast[cli,planner,recording]=={__version__}\n" in metadata
    assert b"connect" in laboratory["gamecast/classic/__init__.py"]


def test_no_import_in_the_wheels_uses_a_flat_name(wheel: dict[str, bytes], laboratory: dict[str, bytes]) -> None:
    for name, source in (wheel | laboratory).items():
        if not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module or ""]
            else:
                continue
            for module in modules:
                assert module.partition(".")[0] not in FOLDERS + OF_LABORATORY, f"{name}:{node.lineno} imports {module}"


def test_the_source_distribution_has_every_file_and_builds_the_same_wheel(
    wheel: dict[str, bytes], tmp_path: Path
) -> None:
    assert build(tmp_path) == wheel
    (file,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        assert set(listed.stdout.split("\0")) - {""} <= names


@pytest.mark.parametrize("is_whole", [False, True], ids=["gamecast", "and the laboratory"])
def test_the_wheel_works_beside_folders_of_the_flat_names(
    wheel: dict[str, bytes], laboratory: dict[str, bytes], tmp_path: Path, is_whole: bool
) -> None:
    site, place = tmp_path / "site", tmp_path / "place"
    for name, content in (wheel | (laboratory if is_whole else {})).items():
        write(site / name, content)
    for folder in FOLDERS + OF_LABORATORY:
        write(place / folder / "__init__.py", b"raise ImportError('gamecast imported a folder that stood beside it')")
    # A script's own folder comes before everything else on the module search path.
    script = shutil.copy(SMOKE, place)
    done = run_at(place, site, script, site, *(["laboratory"] if is_whole else []))
    assert done.returncode == 0, done.stderr


def test_the_command_of_the_wheel_finds_its_subcommands(wheel: dict[str, bytes], tmp_path: Path) -> None:
    for name, content in wheel.items():
        write(tmp_path / name, content)
    done = run_at(tmp_path, tmp_path, "-m", "gamecast", "publish", "--help")
    assert done.returncode == 0, done.stderr
    assert "Publish events to a region" in done.stdout


def test_the_laboratory_s_commands_appear_with_it_and_say_without_it_what_to_install(
    wheel: dict[str, bytes], laboratory: dict[str, bytes], tmp_path: Path
) -> None:
    for name, content in wheel.items():
        write(tmp_path / name, content)
    assert "bench" not in run_at(tmp_path, tmp_path, "-m", "gamecast", "--help").stdout
    for words in ("bench", "lab step x", "demo --protocol isis --duration-s 1", "demo --wan x.csv --duration-s 1"):
        done = run_at(tmp_path, tmp_path, "-m", "gamecast", *words.split())
        assert done.returncode == 2, done.stderr
        assert done.stderr.count("\n") == 1
        assert done.stderr.endswith("is of the laboratory: pip install gamecast-lab\n")
    for name, content in laboratory.items():
        write(tmp_path / name, content)
    assert "bench" in run_at(tmp_path, tmp_path, "-m", "gamecast", "--help").stdout
    assert "several nodes" in run_at(tmp_path, tmp_path, "-m", "gamecast", "bench", "borders", "--help").stdout


def run_at(place: Path, site: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder; ``site``: where it finds what is installed."""
    environment = os.environ | {"PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, *words], cwd=place, env=environment, capture_output=True, text=True, check=False
    )


def write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
