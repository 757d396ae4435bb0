"""What comes with an extra, and what is said where the extra is missing."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gamecast.errors import ExtraMissing, UsageError
from sequencing.extras import EXTRA_OF, first_missing, needed_by, require

ROOT = Path(__file__).parents[3]

DISTRIBUTION_OF = {
    "jwt": "pyjwt",
    "opentelemetry": "opentelemetry-sdk",
    "socketio": "python-socketio",
    "websocket": "websocket-client",
}
WITH_ANOTHER = {"cryptography", "gevent"}  # with pyjwt[crypto] and locust


@pytest.fixture
def without_jwt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)  # as the import system marks what cannot be imported


@pytest.mark.usefixtures("without_jwt")
def test_a_missing_extra_is_told_in_one_line_with_its_cure() -> None:
    with pytest.raises(ExtraMissing) as told, needed_by("the gateway"):
        import jwt  # noqa: F401
    assert str(told.value) == "the gateway needs jwt: pip install 'gamecast[gateway]'"
    assert told.value.extra == "gateway"
    assert isinstance(told.value, UsageError)


@pytest.mark.usefixtures("without_jwt")
def test_what_would_be_in_vain_is_refused_before_it_begins() -> None:
    with pytest.raises(ExtraMissing, match=r"gamecast\[gateway\]"):
        require("gateway", "the gateway")
    assert first_missing("cli", "this") is None


def test_a_module_that_no_extra_brings_is_a_bug_and_stays_one() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), needed_by("the gateway"):
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401


@pytest.mark.parametrize("module", sorted(EXTRA_OF.keys() - WITH_ANOTHER))
def test_every_extra_that_is_named_brings_its_module(module: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    brought = project["optional-dependencies"][EXTRA_OF[module]]
    assert any(
        requirement.startswith(DISTRIBUTION_OF.get(module, module.replace("_", "-"))) for requirement in brought
    ), brought


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("click", "--version", "cli"),
        ("rich", "status redis://127.0.0.1:1", "cli"),
        ("jwt", "token keygen --out {}", "gateway"),
        ("aiohttp", "gateway redis://127.0.0.1:1", "gateway"),
        ("aiohttp", "up --gateway", "gateway"),
        ("numpy", "up --no-gateway", "planner"),
        ("networkx", "manager redis://127.0.0.1:1", "planner"),
        ("pyarrow", "convert a b --to log", "recording"),
        ("scipy", "audit {}", "planner"),
        ("pyarrow", "record redis://127.0.0.1:1 --out {}", "recording"),
    ],
)
def test_a_command_says_which_extra_it_needs_and_ends_with_2(
    module: str, arguments: str, extra: str, tmp_path: Path
) -> None:
    words = [word.format(tmp_path / "out") for word in arguments.split()]
    program = f"import sys; sys.modules[{module!r}] = None; from gamecast.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("gamecast: ")
    assert f"needs {module}: pip install 'gamecast[{extra}]'" in line
    assert not list(tmp_path.iterdir())
