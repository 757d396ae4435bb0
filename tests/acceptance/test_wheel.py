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

ROOT = Path(__file__).parents[2]
SMOKE = ROOT / "tests" / "acceptance" / "wheel_smoke.py"
FOLDERS = (
    *("adapters", "analytics", "classic", "cli", "laboratory", "launcher", "loadtest", "placement", "sequencing"),
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The contents of the wheel that is built straight from the tree."""
    return build(tmp_path_factory.mktemp("straight"), "--wheel")


def build(directory: Path, *options: str) -> dict[str, bytes]:
    command: list[str | Path] = [sys.executable, "-m", "build", "--no-isolation", "--outdir", directory, *options, ROOT]
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
    stand_ins = {f"gamecast/{name}.py" for name in ("analytics", "classic", "loadtest")}  # for folders
    expected -= stand_ins
    assert not stand_ins & wheel.keys()
    assert expected <= wheel.keys()
    assert "gamecast/py.typed" in expected


def test_no_import_in_the_wheel_uses_a_flat_name(wheel: dict[str, bytes]) -> None:
    for name, source in wheel.items():
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
                assert module.partition(".")[0] not in FOLDERS, f"{name}:{node.lineno} imports {module}"


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


def test_the_wheel_works_beside_folders_of_the_flat_names(wheel: dict[str, bytes], tmp_path: Path) -> None:
    site, place = tmp_path / "site", tmp_path / "place"
    for name, content in wheel.items():
        write(site / name, content)
    for folder in FOLDERS:
        write(place / folder / "__init__.py", b"raise ImportError('gamecast imported a folder that stood beside it')")
    # A script's own folder comes before everything else on the module search path.
    script = shutil.copy(SMOKE, place)
    done = run_at(place, site, script, site)
    assert done.returncode == 0, done.stderr


def test_the_command_of_the_wheel_finds_its_subcommands(wheel: dict[str, bytes], tmp_path: Path) -> None:
    for name, content in wheel.items():
        write(tmp_path / name, content)
    done = run_at(tmp_path, tmp_path, "-m", "gamecast", "publish", "--help")
    assert done.returncode == 0, done.stderr
    assert "Publish events to a region" in done.stdout


def run_at(place: Path, site: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder; ``site``: where it finds what is installed."""
    environment = os.environ | {"PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, *words], cwd=place, env=environment, capture_output=True, text=True, check=False
    )


def write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
