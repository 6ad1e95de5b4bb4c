"""Writes dashboards/*.json: `python infra/grafana/make.py`. A test compares them with what this makes.

A panel is a title, a unit and its queries; places on the grid follow from their order, three to a row.
Left out: everything that Grafana has a default for.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "dashboards"
Panel = tuple[str, str, list[tuple[str, str]]]
"""Title, Grafana's name of the unit, and pairs of query and legend."""


def quantile(q: float, metric: str, by: str = "") -> str:
    """A quantile of a histogram over five minutes."""
    labels = ", ".join(filter(None, ("le", by)))
    return f"histogram_quantile({q}, sum by ({labels}) (rate({metric}_bucket[5m])))"


def rate(metric: str, by: str, within: str = "") -> str:
    """Events per second, by a label."""
    selector = f"{{{within}}}" if within else ""
    return f"sum by ({by}) (rate({metric}{selector}[5m]))"


LOOP: list[Panel] = [
    ("Messages finished", "ops", [(rate("tiltyard_messages_total", "stage", 'ending="done"'), "{{stage}}")]),
    ("Lag", "short", [("max by (stage) (tiltyard_lag)", "{{stage}}")]),
    ("Delivered, not answered", "short", [("max by (stage) (tiltyard_unacknowledged)", "{{stage}}")]),
    ("Waiting, 95 of 100 within", "s", [(quantile(0.95, "tiltyard_wait_seconds", "stage"), "{{stage}}")]),
    ("Handling, 95 of 100 within", "s", [(quantile(0.95, "tiltyard_handle_seconds", "stage"), "{{stage}}")]),
    ("In handlers", "short", [("sum by (stage) (tiltyard_in_flight)", "{{stage}}")]),
    ("Groups closed", "ops", [(rate("tiltyard_groups_total", "reason"), "{{reason}}")]),
    (
        "Reward, mean",
        "short",
        [
            (
                "sum by (domain) (rate(tiltyard_reward_sum[15m])) / sum by (domain) (rate(tiltyard_reward_count[15m]))",
                "{{domain}}",
            )
        ],
    ),
    (
        "Policy version",
        "short",
        [
            ("max(tiltyard_gateway_wanted_version)", "newest"),
            ("min by (engine) (tiltyard_gateway_engine_version)", "{{engine}}"),
        ],
    ),
    ("Verdicts", "ops", [(rate("tiltyard_verifier_verdicts_total", "result"), "{{result}}")]),
    ("Grading jobs planned", "ops", [(rate("tiltyard_verifier_jobs_total", "domain"), "{{domain}}")]),
    ("Verdicts too late for their group", "ops", [(rate("tiltyard_late_verdicts_total", "domain"), "{{domain}}")]),
]
FAULTS: list[Panel] = [
    ("Redeliveries", "ops", [(rate("tiltyard_redeliveries_total", "stage"), "{{stage}}")]),
    ("Not finished, by ending", "ops", [(rate("tiltyard_messages_total", "ending", 'ending!="done"'), "{{ending}}")]),
    ("Under suspicion", "ops", [(rate("tiltyard_suspects_total", "stage"), "{{stage}}")]),
    ("New dead letters", "ops", [(rate("tiltyard_dead_letters_total", "reason"), "{{reason}}")]),
    ("Dead letters that wait", "short", [("max by (stage, reason) (tiltyard_dlq_depth)", "{{stage}} {{reason}}")]),
    ("Oldest dead letter", "s", [("max by (stage) (tiltyard_dlq_oldest_seconds)", "{{stage}}")]),
    ("Paused domains", "short", [("max by (stage, domain) (tiltyard_paused)", "{{stage}} {{domain}}")]),
    ("Bus answers", "short", [("tiltyard_bus_up", "{{instance}}")]),
    ("Connected again", "short", [("tiltyard_bus_reconnects", "{{instance}}")]),
]
ENGINES: list[Panel] = [
    ("Tokens", "ops", [(rate("tiltyard_gateway_tokens_total", "kind"), "{{kind}}")]),
    ("Turns", "ops", [(rate("tiltyard_gateway_turns_total", "ending"), "{{ending}}")]),
    ("Calls repeated", "ops", [(rate("tiltyard_gateway_retries_total", "why"), "{{why}}")]),
    (
        "A turn takes",
        "s",
        [
            (quantile(0.5, "tiltyard_gateway_generate_seconds"), "half within"),
            (quantile(0.95, "tiltyard_gateway_generate_seconds"), "95 of 100 within"),
        ],
    ),
    ("Requests in flight", "short", [("sum by (engine) (tiltyard_gateway_engine_in_flight)", "{{engine}}")]),
    ("State", "short", [("max by (engine, state) (tiltyard_gateway_engine_state) == 1", "{{engine}} {{state}}")]),
    ("Out for new weights, 95 of 100 within", "s", [(quantile(0.95, "tiltyard_gateway_sync_seconds"), "update")]),
    ("Failed updates", "ops", [(rate("tiltyard_gateway_sync_failed_total", "engine"), "{{engine}}")]),
    ("Engine: running", "short", [("sglang:num_running_reqs", "{{instance}}")]),
    ("Engine: queued", "short", [("sglang:num_queue_reqs", "{{instance}}")]),
    ("Engine: token limit in use", "percentunit", [("sglang:token_usage", "{{instance}}")]),
    ("Engine: tokens", "ops", [("sglang:gen_throughput", "{{instance}}")]),
]
SANDBOX: list[Panel] = [
    ("Commands", "ops", [(rate("tiltyard_sandbox_executions_total", "outcome"), "{{outcome}}")]),
    ("Busy", "short", [("sum(tiltyard_sandbox_busy)", "busy"), ("sum(tiltyard_sandbox_sessions)", "sessions")]),
    (
        "Ready and wanted",
        "short",
        [
            ("sum by (profile) (tiltyard_sandbox_ready)", "{{profile}} ready"),
            ("sum by (profile) (tiltyard_sandbox_pool_target)", "{{profile}} wanted"),
        ],
    ),
    ("Claims", "ops", [(rate("tiltyard_sandbox_claims_total", "from"), "{{from}}")]),
    ("Waiting for one, 95 of 100 within", "s", [(quantile(0.95, "tiltyard_sandbox_claim_seconds"), "claim")]),
    ("Starting one, 95 of 100 within", "s", [(quantile(0.95, "tiltyard_sandbox_start_seconds"), "start")]),
    ("Failed starts", "ops", [(rate("tiltyard_sandbox_starts_failed_total", "instance"), "{{instance}}")]),
    ("Left behind", "short", [("tiltyard_sandbox_leaked", "{{instance}}")]),
    ("Lost sessions", "ops", [(rate("tiltyard_sandbox_rebuilt_total", "how"), "{{how}}")]),
    ("Killed", "ops", [(rate("tiltyard_sandbox_killed_total", "cause"), "{{cause}}")]),
    ("Refused", "ops", [(rate("tiltyard_sandbox_refused_total", "reason"), "{{reason}}")]),
    ("Waiting for a quota", "short", [("sum(tiltyard_sandbox_waiting)", "waiting")]),
    ("Commands, 95 of 100 within", "s", [(quantile(0.95, "tiltyard_sandbox_execution_seconds", "work"), "{{work}}")]),
    (
        "Breakers that are not closed",
        "short",
        [
            ("max by (profile) (tiltyard_sandbox_breaker)", "{{profile}} (2 is open)"),
            ("sum by (kind, state) (tiltyard_sandbox_abuse_breakers)", "{{kind}} {{state}}"),
        ],
    ),
    ("Remains found and removed", "ops", [(rate("tiltyard_sandbox_strays_total", "instance"), "{{instance}}")]),
    ("Graded without running", "ops", [("sum(rate(tiltyard_sandbox_cached_total[5m]))", "identical jobs")]),
    ("Sessions with a set-up", "ops", [(rate("tiltyard_sandbox_group_starts_total", "by"), "{{by}}")]),
    (
        "Network",
        "Bps",
        [
            ("sum(rate(tiltyard_sandbox_egress_bytes_total[5m]))", "bytes"),
            ("sum(rate(tiltyard_sandbox_egress_connections_total[5m]))", "connections"),
            (rate("tiltyard_sandbox_egress_refused_total", "reason"), "refused: {{reason}}"),
        ],
    ),
]
BOARDS: dict[str, tuple[str, list[Panel]]] = {
    "loop": ("Tiltyard: the loop", LOOP),
    "faults": ("Tiltyard: faults", FAULTS),
    "engines": ("Tiltyard: gateway and engines", ENGINES),
    "sandbox": ("Tiltyard: sandbox", SANDBOX),
}


def panel(index: int, title: str, unit: str, queries: list[tuple[str, str]]) -> dict[str, Any]:
    """One time series."""
    source = {"type": "prometheus", "uid": "prometheus"}
    return {
        "id": index + 1,
        "type": "timeseries",
        "title": title,
        "datasource": source,
        "gridPos": {"x": index % 3 * 8, "y": index // 3 * 8, "w": 8, "h": 8},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": source, "expr": expr, "legendFormat": legend}
            for at, (expr, legend) in enumerate(queries)
        ],
    }


def board(name: str) -> dict[str, Any]:
    """One dashboard as Grafana imports it."""
    title, panels = BOARDS[name]
    return {
        "uid": f"tiltyard-{name}",
        "title": title,
        "tags": ["tiltyard"],
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "panels": [panel(index, *each) for index, each in enumerate(panels)],
    }


def text(name: str) -> str:
    """The file's content."""
    return json.dumps(board(name), indent=1) + "\n"


if __name__ == "__main__":
    for each in BOARDS:
        (HERE / f"{each}.json").write_text(text(each))
