"""What is shipped for watching agrees with the metrics that the code has."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY
from prometheus_client.metrics import MetricWrapperBase

from tiltyard.engine.metrics import Metrics

ROOT = Path(__file__).parents[2]
RULES = ROOT / "infra/prometheus/rules.yml"
BOARDS = sorted((ROOT / "infra/grafana/dashboards").glob("*.json"))
PAGES = ROOT / "docs/runbooks"
MODULES = ("kit.metrics", "gateway.metrics", "sandbox.metrics", "verifier.app", "aggregator.groups")
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
ADDED = {"instance", "job", "service", "le"}
"""Labels that scraping and histograms add."""
NAME = re.compile(r"\b(?:tiltyard_\w+|sglang:\w+)")


def promtool() -> str:
    """The checker of rules; infra/setup/promtool.sh brings it."""
    home = Path(os.environ.get("TILTYARD_HOME") or Path.home() / ".cache/tiltyard")
    found = shutil.which("promtool") or str(home / "bin/promtool")
    assert Path(found).exists(), "no promtool: run `make promtool`"
    return found


@pytest.fixture(scope="module")
def series() -> dict[str, set[str]]:
    """Every series that some process of ours shows, with its labels."""
    for module in MODULES:
        importlib.import_module(f"tiltyard.{module}")
    engine = Metrics(lambda: None, 1)  # type: ignore[arg-type, return-value]  # nothing is read
    collectors = {id(each): each for each in REGISTRY._collector_to_names if isinstance(each, MetricWrapperBase)}
    collectors |= {id(each): each for each in engine.registry._collector_to_names}
    return {
        each._name + suffix: set(each._labelnames) | ADDED
        for each in collectors.values()
        for suffix in SUFFIXES[each._type]
    }


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def queries() -> Iterator[tuple[str, str]]:
    """Where a query stands, and the query."""
    for path in BOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{path.stem}: {panel['title']}", target["expr"]
    for rule in rules():
        yield rule.get("alert") or rule["record"], rule["expr"]


def wrong(expr: str, series: dict[str, set[str]]) -> list[str]:
    """Metrics and labels of a query that no process shows."""
    found = [name for name in NAME.findall(re.sub(r"\w+:tiltyard_\w+:\w+", "", expr)) if name not in series]
    known = set().union(*(series.get(name, set()) for name in NAME.findall(expr)), ADDED)
    if recorded := re.findall(r"\w+:tiltyard_\w+:\w+", expr):
        assert set(recorded) <= {rule.get("record") for rule in rules()}
    labels = [part.strip() for group in re.findall(r"\bby \(([^)]*)\)", expr) for part in group.split(",")]
    for name, selector in re.findall(r"((?:tiltyard_|sglang:)\w+)\{([^}]*)\}", expr):
        found += [f"{name}.{label}" for label in re.findall(r"(\w+)\s*[!=]", selector) if label not in series[name]]
    return found + [label for label in labels if label and label not in known]


def test_queries_ask_for_metrics_that_exist(series: dict[str, set[str]]) -> None:
    """Every panel and every rule asks for metrics of the code, by labels that these have."""
    asked = list(queries())
    assert len(asked) > 60
    assert [(where, bad) for where, expr in asked if (bad := wrong(expr, series))] == []


def test_a_wrong_query_is_found(series: dict[str, set[str]]) -> None:
    """The check above sees a metric and a label that do not exist."""
    assert wrong("tiltyard_nothing_total", series) == ["tiltyard_nothing_total"]
    assert wrong('tiltyard_lag{domain="x"}', series) == ["tiltyard_lag.domain"]
    assert wrong("sum by (colour) (tiltyard_lag)", series) == ["colour"]


def test_every_metric_is_on_a_panel(series: dict[str, set[str]]) -> None:
    """Each metric of ours is shown somewhere; the embedded engine's are SGLang's own."""
    shown = {name for _, expr in queries() for name in NAME.findall(expr)}
    metrics = {re.sub("_(bucket|sum|count)$", "", name) for name in series if name.startswith("tiltyard_")}
    assert metrics - {re.sub("_(bucket|sum|count)$", "", name) for name in shown} == set()


def test_dashboards_are_made_from_their_source() -> None:
    """Each file is what infra/grafana/make.py writes; panels of a board have ids and places of their own."""
    spec = importlib.util.spec_from_file_location("make_dashboards", ROOT / "infra/grafana/make.py")
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    assert [path.stem for path in BOARDS] == sorted(make.BOARDS)
    for path in BOARDS:
        assert path.read_text() == make.text(path.stem)
        panels = json.loads(path.read_text())["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)


def test_rules_pass_promtool() -> None:
    """promtool accepts the rules, and every case of rules_test.yml fires what it should and nothing else."""
    for arguments in (["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"]):
        done = subprocess.run(
            [promtool(), *arguments], cwd=RULES.parent, capture_output=True, text=True, timeout=55, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["kubernetes.yml", "compose.yml"])
def test_the_scrape_configuration_passes_promtool(name: str) -> None:
    """Prometheus takes what it is given on Kubernetes and under Compose."""
    done = subprocess.run(
        [promtool(), "check", "config", "--syntax-only", name],
        cwd=RULES.parent, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    """Each alert is tried in rules_test.yml with an input for which it fires."""
    cases = yaml.safe_load((RULES.parent / "rules_test.yml").read_text())["tests"]
    fired = {case["alertname"] for each in cases for case in each["alert_rule_test"] if case["exp_alerts"]}
    assert fired == set(alerts())


def test_every_alert_has_a_page() -> None:
    """Alerts and pages are one to one; a page names each metric of its alert, says what it means, and what to do."""
    assert {path.stem for path in PAGES.glob("*.md")} == set(alerts())
    for name, rule in alerts().items():
        assert rule["annotations"]["runbook"] == f"docs/runbooks/{name}.md"
        assert rule["labels"]["severity"] in ("page", "ticket")
        text = (PAGES / f"{name}.md").read_text()
        assert text.startswith(f"# {name}\n")
        for heading in ("## What it means", "## Look", "## Do"):
            assert heading in text, f"{name}: no {heading}"
        for metric in NAME.findall(re.sub(r"\w+:tiltyard_\w+:\w+", "", rule["expr"])):
            assert f"`{metric}" in text, f"{name}: {metric}"


def test_pages_name_metrics_that_exist(series: dict[str, set[str]]) -> None:
    """No page speaks of a metric that nobody shows."""
    for path in [*PAGES.glob("*.md"), ROOT / "docs/observability.md", ROOT / "docs/operations.md"]:
        bases = {re.sub("_(bucket|sum|count)$", "", name) for name in series}
        named = set(re.findall(r"`(tiltyard_\w+|sglang:\w+)", path.read_text()))
        assert {name for name in named if name not in bases and not name.startswith("tiltyard_proto")} == set(), path


def test_the_collector_is_wired() -> None:
    """What its pipelines name is configured, and it listens where services send spans."""
    config = yaml.safe_load((ROOT / "infra/otel/collector.yaml").read_text())
    for pipeline in config["service"]["pipelines"].values():
        for kind, names in pipeline.items():
            assert set(names) <= set(config[kind])
    assert set(config["service"]["extensions"]) == set(config["extensions"])
    port = config["receivers"]["otlp"]["protocols"]["http"]["endpoint"].rpartition(":")[2]
    for overlay in ("dev", "production"):
        text = (ROOT / f"infra/kubernetes/overlays/{overlay}/tiltyard.toml").read_text()
        assert f'otlp_endpoint = "http://collector.tiltyard.svc:{port}"' in text
