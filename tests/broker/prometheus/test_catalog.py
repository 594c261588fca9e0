"""The catalog of metrics: its names, its page, and what alerts and the dashboard use of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.prometheus import catalog
from broker.prometheus.metric import Kind, Metric
from tests.broker.prometheus.metrics_page import PAGE, reference

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
DASHBOARD = ROOT / "deploy/grafana/dledger.json"
OPERATIONS = ROOT / "docs/operations.md"

WORDS = frozenset(
    re.findall(
        r"\w+",
        "and by for histogram_quantile increase label_values max min offset on or rate sum topk "
        "unless job instance le",
    )
)
"""Of PromQL and of Prometheus itself, as far as they are used here."""


def known_names() -> dict[str, frozenset[str]]:
    """What a query may name, and the labels of it."""
    names = {name: frozenset[str]() for name in (*catalog.PROCESS, "up")}
    for metric in catalog.METRICS:
        labels = frozenset((*catalog.NODE_LABELS, *metric.labels))
        if metric.kind is Kind.HISTOGRAM:
            names |= {f"{metric.name}_{part}": labels for part in ("bucket", "sum", "count")}
        else:
            names[metric.name] = labels
    return names


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def queries() -> Iterator[str]:
    for rule in rules():
        yield rule["expr"]
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]


@pytest.mark.parametrize("metric", catalog.METRICS, ids=lambda metric: metric.name)
def test_a_metric_is_named_as_prometheus_and_rocketmq_name_theirs(metric: Metric) -> None:
    assert re.fullmatch("(dledger|rocketmq)_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert metric.kind is not Kind.HISTOGRAM or metric.name.endswith("_seconds")
    assert metric.help.endswith(".")
    assert not set(metric.labels) & {*catalog.NODE_LABELS, "le", "job", "instance"}


def test_no_name_stands_twice_in_the_catalog() -> None:
    names = [metric.name for metric in catalog.METRICS]
    assert len(set(names)) == len(names)
    assert set(catalog.METRICS) == catalog.ON_BROKER | catalog.ON_NAMESERVER


def test_the_page_of_metrics_is_the_catalog() -> None:
    assert (ROOT / PAGE).read_text() == reference(), (
        "run python -m tests.broker.prometheus.metrics_page"
    )


def test_alerts_and_the_dashboard_use_only_names_and_labels_that_exist() -> None:
    known = known_names()
    labels = frozenset().union(*known.values())
    used: set[str] = set()
    for query in queries():
        bare = re.sub(r'"[^"]*"', "", query)
        words = set(re.findall(r"(?<![\w$])[a-z_]\w*", re.sub(r"\[[^]]*\]", "", bare)))
        words = {word for word in words if not re.fullmatch(r"\d+[smhd]", word)}
        assert words - WORDS - labels <= known.keys(), query
        for name, chosen in re.findall(r"(\w+)\{([^}]*)\}", bare):
            chosen_labels = set(re.findall(r"(\w+)[=!]", chosen))
            assert chosen_labels <= known.get(name, frozenset()) | {"job"}, query
        used |= words & known.keys()
    assert len(used) > 30


def test_an_annotation_names_labels_that_its_alert_has() -> None:
    for rule in rules():
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        grouped = re.search(r"(?:by) \(([^)]*)\)", rule["expr"])
        if grouped:
            assert named <= set(re.split(r",\s*", grouped.group(1))), rule["alert"]
        else:
            names = [name for name in known_names() if re.search(rf"\b{name}\b", rule["expr"])]
            shared = frozenset.intersection(*(known_names()[name] for name in names or ["up"]))
            assert named <= shared | {"instance"}, rule["alert"]


def test_the_page_for_operators_explains_each_alert_and_no_other() -> None:
    explained = re.findall(r"^\| `(Dledger\w+)` \|", OPERATIONS.read_text(), re.MULTILINE)
    assert sorted(explained) == sorted(rule["alert"] for rule in rules())


def test_the_page_for_operators_names_metrics_that_exist() -> None:
    named = re.findall(r"`((?:dledger|rocketmq|process)_\w+)`", OPERATIONS.read_text())
    bases = {metric.name for metric in catalog.METRICS} | set(catalog.PROCESS)
    assert named
    assert set(named) <= bases


@pytest.mark.processes
@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool, of Prometheus, is not here")
@pytest.mark.parametrize(
    "command",
    [
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
        ["check", "config", "prometheus.yml"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_prometheus_takes_its_files(command: list[str]) -> None:
    done = subprocess.run(
        ["promtool", *command], cwd=ALERTS.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
