"""The files in deploy/, tried with servers of this machine: what they configure is what the page promises."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import click
import kubernetes_validate
import pytest
import yaml

import gamecast
from adapters.embedded.replicated import online_replicas
from adapters.embedded.server import EmbeddedServer
from cli.doctor import findings_of
from cli.main import cli
from tests.events import take
from tests.integration.adapters.test_cluster import until

DEPLOY = Path(__file__).parents[3] / "deploy"


def lines_of(name: str) -> list[str]:
    return [line for line in (DEPLOY / name).read_text().splitlines() if line and not line.startswith("#")]


def port_of(server: EmbeddedServer) -> str:
    return str(urlsplit(server.url).port)


async def test_a_pair_and_a_sentinel_as_configured_lose_nothing_by_the_doctor() -> None:
    settings = dict(line.split(" ", 1) for line in lines_of("redis.conf"))
    async with AsyncExitStack() as stack:
        master = await stack.enter_async_context(EmbeddedServer(settings=settings))
        replica = EmbeddedServer(settings=settings | {"replicaof": f"127.0.0.1 {port_of(master)}"})
        await stack.enter_async_context(replica)
        watched = [
            re.sub(r"monitor n1 n1 6379 2", f"monitor n1 127.0.0.1 {port_of(master)} 1", line)
            for line in lines_of("sentinel.conf")
            if " n2" not in line
        ]
        sentinel = await stack.enter_async_context(EmbeddedServer(arguments=("--sentinel",), lines=watched))
        until(lambda: online_replicas(master.url) == 1)
        url = f"redis+sentinel://127.0.0.1:{port_of(sentinel)}/n1?replicas=1"
        async with gamecast.connect(url, name="s") as client:
            await client.subscribe("a")
            await client.publish("a", 1)
            assert [event.payload for event in await take(client, 1)] == [1]
            troubles = [finding for finding in await findings_of(url) if finding.level != "ok"]
            assert troubles == []


def test_the_compose_file_uses_these_files_and_names() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    assert set(re.findall(r"\./([\w.]+):/etc/gamecast/", text)) == {"redis.conf", "sentinel.conf"}
    services = set(re.findall(r"^  ([\w-]+):", text.partition("services:")[2], re.MULTILINE))
    monitored = set(re.findall(r"monitor (\w+) (\w+) 6379", "\n".join(lines_of("sentinel.conf"))))
    assert {name for pair in monitored for name in pair} <= services
    for urls in re.findall(r"redis\+sentinel://([\w,-]+)/(\w+)", text):
        assert set(urls[0].split(",")) | {urls[1]} <= services


@pytest.mark.parametrize("command", ["check rules alerts.yaml", "test rules alerts.test.yaml"])
def test_the_alerts_are_rules_that_fire_when_they_should(command: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    done = subprocess.run(
        [promtool, *command.split()], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_while_all_is_well_and_in_its_incident() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"][0]["rules"]
    alerts = {rule["alert"] for rule in rules}
    healthy, *incidents = yaml.safe_load((DEPLOY / "prometheus" / "alerts.test.yaml").read_text())["tests"]
    quiet = [each for each in healthy["alert_rule_test"] if not each["exp_alerts"]]
    assert {each["alertname"] for each in quiet if each["eval_time"] == "20h"} == alerts
    tried = [each for incident in incidents for each in incident["alert_rule_test"]]
    assert {each["alertname"] for each in tried if each["exp_alerts"]} == alerts


def expressions(dashboard: str) -> list[str]:
    """Return the queries of a dashboard's panels, none of which may cover another."""
    panels = json.loads(dashboard)["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len({panel["id"] for panel in panels}) == len(panels)
    return [target["expr"] for panel in panels for target in panel["targets"]]


@pytest.mark.parametrize("file", ["deploy/prometheus/alerts.yaml", "docs/grafana-dashboard.json"])
def test_alerts_and_panels_use_metrics_that_a_gateway_has(file: str) -> None:
    text = (DEPLOY.parent / file).read_text()
    used = set(re.findall(r"\bgamecast_\w+", text if file.endswith("yaml") else " ".join(expressions(text))))
    assert len(used) > 5
    folder = Path(__file__).parents[3] / "gateway"
    text = "".join((folder / name).read_text() for name in ("metrics.py", "networkmetrics.py"))
    made = set(re.findall(r'"(gamecast_\w+)"', text)) | {
        f"gamecast_gateway_{name}" for name in re.findall(r'\("(\w+)", "', text)
    }
    assert {name.removesuffix("_total").removesuffix("_bucket") for name in used} <= made


def test_kubernetes_takes_the_manifests_and_gamecast_their_arguments() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "gamecast.yaml").read_text()))
    for document in documents:
        kubernetes_validate.validate(document, "1.31", strict=True)
    templates = [each["spec"]["template"] for each in documents if each["kind"] in ("Deployment", "StatefulSet")]
    containers = [container for template in templates for container in template["spec"]["containers"]]
    for container in containers:
        if container["image"].startswith("registry.example/gamecast"):
            accepted_options(container["args"])
        ports = {port["name"] for port in container["ports"]} if "ports" in container else set()
        assert {probe["httpGet"]["port"] for probe in container.values() if "httpGet" in probe} <= ports
    labels = [template["metadata"]["labels"] for template in templates]
    selectors = [each["spec"]["selector"] for each in documents if each["kind"] == "Service"]
    assert all(any(selector.items() <= label.items() for label in labels) for selector in selectors)
    [config] = [each for each in documents if each["kind"] == "ConfigMap"]
    assert {"appendfsync always", "maxmemory-policy noeviction"} <= set(config["data"]["redis.conf"].splitlines())
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**documents[1], "spec": {"selectors": {}}}, "1.31", strict=True)


def accepted_options(words: list[str]) -> None:
    """Check that a command has all options that are given to it."""
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None, words
    options = {name for each in command.params for name in each.opts}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= options


@pytest.mark.parametrize("unit", sorted((DEPLOY / "systemd").glob("*.service")), ids=lambda file: file.name)
def test_systemd_takes_the_units(unit: Path, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed: apt-get install systemd")
    text = unit.read_text()
    started = re.search(r"^ExecStart=\S+/gamecast (.*)$", text, re.MULTILINE)
    assert started is not None
    accepted_options(started.group(1).replace("%i", "n1").split())
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", text, flags=re.MULTILINE))
    done = subprocess.run([analyze, "verify", str(copy)], capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if unit.stem.rstrip("@") in line]
    assert complaints == []
