"""The Containerfile, the compose file and the Kubernetes manifests, held against their schemas."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_spec import PyOptions

from broker.cli.command_line import run_command
from broker.config.config_file import NAME_SERVER, NODE, load_text
from broker.config.node_config import NodeConfig

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = (DEPLOY / "container" / "compose.yaml").read_text()
MANIFESTS = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "dledger.yaml").read_text()))
OLDEST_KUBERNETES = "1.28"


def node_config(text: str, environ: Mapping[str, str]) -> NodeConfig:
    loaded = load_text(NODE, text, "/etc/dledger", environ=environ)
    assert loaded.problems == []
    assert loaded.config is not None
    return loaded.config


# --- Containerfile


def instructions() -> list[tuple[str, str]]:
    text = (DEPLOY / "container" / "Containerfile").read_text()
    lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    pairs = (line.split(None, 1) for line in lines if line.strip())
    return [(instruction, rest) for instruction, rest in pairs]


def test_the_image_is_built_of_what_a_checkout_has() -> None:
    known = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "ENV", "EXPOSE", "STOPSIGNAL"}
    found = instructions()
    assert {name for name, _ in found} <= known | {"ENTRYPOINT", "CMD"}
    stages = [rest for name, rest in found if name == "FROM"]
    assert all(re.fullmatch(r"docker\.io/library/python:3\.11-slim( AS \w+)?", s) for s in stages)
    for _, rest in (each for each in found if each[0] == "RUN"):
        for path in re.findall(r"-r (\S+)", rest):
            assert (ROOT / path).is_file()
    ignored = (ROOT / ".containerignore").read_text().split()
    assert {".venv", ".git", "data"} <= set(ignored)
    users = [rest for name, rest in found if name == "USER"]
    assert users
    assert not users[-1].startswith(("0", "root"))


def test_the_image_runs_the_command_that_the_wheel_installs() -> None:
    found = dict(instructions())
    (entry,) = json.loads(found["ENTRYPOINT"])
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert entry in scripts
    command = json.loads(found["CMD"])
    assert command[:2] == ["node", "--config"]
    assert found["STOPSIGNAL"] == "SIGTERM"
    ports = {int(port) for port in found["EXPOSE"].split()}
    config = node_config(yaml.safe_load(COMPOSE)["configs"]["node"]["content"], {})
    assert ports == {9876, *(at.port for at in config.listening.endpoints.values())}


# --- compose


def test_the_compose_file_follows_the_compose_specification() -> None:
    merged = PyOptions(apply_merge=True)
    compose = merged.from_yaml(COMPOSE)
    compose.validate()
    assert set(compose.service_names()) == {"namesrv", "n0", "n1", "n2"}
    with pytest.raises(ValueError, match="helthcheck"):
        merged.from_yaml(COMPOSE.replace("healthcheck:", "helthcheck:"))


def test_the_nodes_of_the_compose_file_form_a_group() -> None:
    document = yaml.safe_load(COMPOSE)
    text = document["configs"]["node"]["content"].replace("$$", "$")
    services = document["services"]
    names = set(services) - {"namesrv"}
    for name in names:
        environ = services[name]["environment"]
        config = node_config(text, environ)
        assert config.node == name
        assert {each.host for each in config.own.endpoints.values()} == {name}
        assert set(config.members) == names
        assert services[name]["volumes"] == [f"{name}:{config.data}"]
        assert int(services[name]["stop_grace_period"].removesuffix("s")) > config.drain_seconds
        assert str(config.listening.http.port) in services[name]["healthcheck"]["test"][-1]
    assert config.namesrv == ("namesrv:9876",)


# --- Kubernetes


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda each: each["kind"])
def test_a_manifest_follows_the_schema_of_kubernetes(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, OLDEST_KUBERNETES, strict=True)
    wrong = {**manifest, "metdata": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, OLDEST_KUBERNETES, strict=True)


def manifest_of(kind: str, name: str = "dledger") -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = (e for e in MANIFESTS if e["kind"] == kind and e["metadata"]["name"] == name)
    return found


def test_the_pods_of_the_stateful_set_form_a_group() -> None:
    stateful = manifest_of("StatefulSet")["spec"]
    texts = manifest_of("ConfigMap")["data"]
    pod = stateful["template"]["spec"]
    (container,) = pod["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert pod["enableServiceLinks"] is False
    service = manifest_of("Service", stateful["serviceName"])["spec"]
    assert service["publishNotReadyAddresses"] is True
    assert service["clusterIP"] == "None"
    for index in range(stateful["replicas"]):
        environ = {
            name: value.replace("$(POD_INDEX)", str(index))
            for name, value in variables.items()
            if value
        }
        config = node_config(texts["node.toml"], environ)
        assert {each.host for each in config.own.endpoints.values()} == {
            f"dledger-{index}.{stateful['serviceName']}"
        }
        assert len(config.members) == stateful["replicas"]
        (data,) = (v for v in container["volumeMounts"] if v["name"] == "data")
        assert config.data.startswith(data["mountPath"] + "/")
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        listening = {key: at.port for key, at in config.listening.endpoints.items()}
        assert ports == {
            "remoting": listening["address"],
            "raft": listening["peer"],
            "http": listening["http"],
            "grpc": listening["grpc"],
        }
        assert pod["terminationGracePeriodSeconds"] > config.drain_seconds
    mounted = {v["mountPath"] for v in container["volumeMounts"]}
    assert container["args"] == ["node", "--config", "/etc/dledger/config/node.toml"]
    assert {"/etc/dledger/config", config.security.directory} <= mounted


def test_the_name_server_is_where_the_brokers_look_for_it() -> None:
    loaded = load_text(NAME_SERVER, manifest_of("ConfigMap")["data"]["namesrv.toml"], "/")
    assert loaded.problems == []
    assert loaded.config is not None
    config = node_config(manifest_of("ConfigMap")["data"]["node.toml"], {})
    assert config.namesrv == (f"dledger-namesrv:{loaded.config.port}",)
    (container,) = manifest_of("Deployment", "dledger-namesrv")["spec"]["template"]["spec"][
        "containers"
    ]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"remoting": loaded.config.port, "http": loaded.config.http_port}


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
def test_the_probes_are_those_that_a_server_answers(kind: str) -> None:
    name = "dledger" if kind == "StatefulSet" else "dledger-namesrv"
    (container,) = manifest_of(kind, name)["spec"]["template"]["spec"]["containers"]
    probes = {key: container[key]["httpGet"]["path"] for key in container if key.endswith("Probe")}
    assert probes.pop("startupProbe", "/livez") == "/livez"
    assert probes == {"livenessProbe": "/livez", "readinessProbe": "/readyz"}


def test_the_certificates_that_the_manifest_asks_for_name_its_pods(tmp_path: Path) -> None:
    text = (DEPLOY / "kubernetes" / "dledger.yaml").read_text()
    command = re.search(r"# +dledger (security init (?:.*\\\n)*.*)", text)
    assert command is not None
    words = command[1].replace("\\\n#", " ").split()
    words[2] = os.fspath(tmp_path / "security")
    assert run_command(words) == 0
    config = node_config(manifest_of("ConfigMap")["data"]["node.toml"], {})
    for node in config.members:
        assert (tmp_path / "security" / f"{config.group}-{node}.pem").exists()
    assert (tmp_path / "security" / "namesrv.pem").exists()
