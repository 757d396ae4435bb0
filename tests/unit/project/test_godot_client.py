"""The Godot add-on, as far as it can be checked without Godot."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gamecast.version import __version__
from gateway.refusal import Close
from gateway.schema import PROTOCOL

ADDON = Path(__file__).parents[3] / "clients" / "godot" / "addons" / "gamecast"
SCRIPTS = sorted(map(str, ADDON.glob("*.gd")))
CLIENT = (ADDON / "gamecast_client.gd").read_text(encoding="utf-8")


@pytest.mark.parametrize("tool", ["gdparse", "gdlint"])
def test_the_scripts_are_valid(tool: str) -> None:
    found = shutil.which(tool) or shutil.which(tool, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{tool} is not installed: pip install gdtoolkit")
    done = subprocess.run([found, *SCRIPTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_plugin_names_its_script_and_this_version() -> None:
    plugin = configparser.ConfigParser()
    plugin.read(ADDON / "plugin.cfg")
    assert (ADDON / plugin["plugin"]["script"].strip('"')).exists()
    assert __version__.startswith(plugin["plugin"]["version"].strip('"'))


def test_the_buffers_are_set_before_the_connection() -> None:
    opening = CLIENT[CLIENT.index("func _open(") :]
    assert opening.index("_socket.inbound_buffer_size =") < opening.index("_socket.connect_to_url(")


def test_it_has_the_protocol_and_the_final_close_codes_of_the_gateway() -> None:
    found = re.search(r"const FINAL: Array\[int\] = \[(.*?)\]", CLIENT)
    assert found is not None
    final = {Close.UNSUPPORTED, Close.TOO_LARGE, Close.MALFORMED, Close.UNAUTHORIZED}
    assert set(map(int, found[1].split(","))) == final | {Close.DENIED, Close.SUPERSEDED, Close.EXPIRED}
    assert f"const PROTOCOL_VERSION := {PROTOCOL}\n" in CLIENT


@pytest.mark.parametrize("signal", ["connected", "closed", "event_received", "gap_received", "state_received"])
def test_it_has_the_signals(signal: str) -> None:
    assert re.search(rf"^signal {signal}\(", CLIENT, re.MULTILINE)
    assert f"{signal}.emit(" in CLIENT
