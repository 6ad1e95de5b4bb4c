"""Prometheus metrics of the sandbox service."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.2, 0.4, 0.8, 2, 5, 30)
START_SECONDS = Histogram("tiltyard_sandbox_start_seconds", "From the request to a ready sandbox", buckets=_SECONDS)
CLAIM_SECONDS = Histogram("tiltyard_sandbox_claim_seconds", "Waiting for a sandbox", buckets=_SECONDS)
STARTS_FAILED = Counter("tiltyard_sandbox_starts_failed_total", "Sandboxes that did not start")
EXECUTIONS = Counter("tiltyard_sandbox_executions_total", "Commands by how they ended", ["work", "outcome"])
CACHED = Counter("tiltyard_sandbox_cached_total", "Grading jobs answered by an identical one")
CLAIMS = Counter("tiltyard_sandbox_claims_total", "Sandboxes handed out: ready before (warm) or started then", ["from"])
POOL_TARGET = Gauge("tiltyard_sandbox_pool_target", "Idle sandboxes that the pool aims at", ["profile"])
READY = Gauge("tiltyard_sandbox_ready", "Idle sandboxes", ["profile"])
BUSY = Gauge("tiltyard_sandbox_busy", "Sandboxes running a command")
SESSIONS = Gauge("tiltyard_sandbox_sessions", "Sessions kept between turns")
LEAKED = Gauge("tiltyard_sandbox_leaked", "Sandboxes of which something was left behind")
REBUILT = Counter("tiltyard_sandbox_rebuilt_total", "Sessions that were lost, by what became of them", ["how"])
EGRESS_CONNECTIONS = Counter("tiltyard_sandbox_egress_connections_total", "Connections that left a sandbox")
EGRESS_BYTES = Counter("tiltyard_sandbox_egress_bytes_total", "Bytes between sandboxes and the hosts they may reach")
EGRESS_REFUSED = Counter("tiltyard_sandbox_egress_refused_total", "Connections refused by the proxy", ["reason"])
GROUP_STARTS = Counter(
    "tiltyard_sandbox_group_starts_total", "Sessions with a set-up by how it came: set_up, snapshot", ["by"]
)
KILLED = Counter(
    "tiltyard_sandbox_killed_total",
    "Sandboxes that ended before their user was done: the outcome, or lease, lifetime, quota",
    ["cause"],
)
EXECUTION_SECONDS = Histogram(
    "tiltyard_sandbox_execution_seconds", "Wall time of commands inside", ["work"], buckets=_SECONDS
)
REFUSED = Counter(
    "tiltyard_sandbox_refused_total",
    "Work not begun: abuse, backend, tenant, domain, rate, queue, deadline",
    ["reason"],
)
BREAKER = Gauge("tiltyard_sandbox_breaker", "Breaker of a profile: 0 closed, 1 half open, 2 open", ["profile"])
ABUSE = Gauge("tiltyard_sandbox_abuse_breakers", "Breakers of tasks and groups that are not closed", ["kind", "state"])
WAITING = Gauge("tiltyard_sandbox_waiting", "Work that waits for a quota")
STRAYS = Counter("tiltyard_sandbox_strays_total", "Remains that a reconciliation found and removed")
