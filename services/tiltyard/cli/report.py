"""`tiltyard report`: what a run did, as text for people and as rows {measure, value, unit, target, holds}.

Everything comes from the run's archive and the supervisor's summary, so it can be printed again at any time.
"""

from __future__ import annotations

import math
from argparse import Namespace
from pathlib import Path
from typing import Any

import msgspec

from tiltyard.kit.settings import DataSettings, RunSettings, section
from tiltyard_proto.keys import check_run

from . import stats
from .archive import Archive, DomainEval
from .errors import UserError
from .main import source_of
from .up.summary import Summary

CPU_TARGET_S = 500.0
WALL_TARGET_S = 360.0
MIN_EVAL_ROLLOUTS = 200


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measured figure."""

    measure: str
    value: float | None
    unit: str
    target: str = ""
    holds: bool | None = None


class Rise(msgspec.Struct, frozen=True, kw_only=True):
    """A domain's first and last evaluation."""

    domain: str
    trained: bool
    first: DomainEval
    last: DomainEval
    rise: stats.Estimate


def rises(archive: Archive, run: RunSettings) -> list[Rise]:
    """First against last evaluation of each domain, trained domains first."""
    by_domain: dict[str, list[DomainEval]] = {}
    for evaluation in archive.evaluations():
        by_domain.setdefault(evaluation.domain, []).append(evaluation)
    found = [
        Rise(
            domain=domain,
            trained=domain in run.train,
            first=evaluations[0],
            last=evaluations[-1],
            rise=stats.paired_rise(evaluations[0].by_task, evaluations[-1].by_task),
        )
        for domain, evaluations in by_domain.items()
    ]
    return sorted(found, key=lambda rise: (not rise.trained, rise.domain))


def _rate(evaluation: DomainEval) -> str:
    rate = stats.wilson(evaluation.passed, evaluation.rollouts)
    return (
        f"{rate.value:.2f} [{rate.low:.2f}, {rate.high:.2f}] of {evaluation.rollouts:3d} (version {_span(evaluation)})"
    )


def _span(evaluation: DomainEval) -> str:
    low, high = evaluation.versions
    return str(low) if low == high else f"{low}-{high}"


def _evaluation_lines(found: list[Rise]) -> list[str]:
    lines = ["Held-out pass rate, before and after (templates that are never trained on; sampled; 95 % intervals)"]
    for rise in found:
        mark = "trained" if rise.trained else "evaluated only"
        lines.append(f"  {rise.domain} ({mark})")
        lines.append(f"    before  {_rate(rise.first)}   mean score {rise.first.mean_score:.2f}")
        if rise.last.version != rise.first.version:
            lines.append(f"    after   {_rate(rise.last)}   mean score {rise.last.mean_score:.2f}")
            lines.append(
                f"    rise    {rise.rise.value:+.2f} [{rise.rise.low:+.2f}, {rise.rise.high:+.2f}] "
                f"over {len(rise.last.by_task)} tasks"
            )
    return lines


def _curve_lines(policies: list[dict[str, Any]]) -> list[str]:
    steps = [policy for policy in policies if policy["version"] > 0]
    if not steps:
        return []
    rewards, passes = _metric(steps, "reward_mean"), _metric(steps, "pass_rate")
    finite = [value for value in rewards if not math.isnan(value)]
    lines = [f"Training reward by step      {stats.sparkline([0 if math.isnan(v) else v for v in rewards])}"]
    if finite:
        lines[0] += f"  {finite[0]:.2f} -> {finite[-1]:.2f}"
    lines.append("  step  reward  pass  groups  no signal  entropy  mismatch KL  grad norm  staleness  CPU s")
    for policy, reward, passed in zip(steps, rewards, passes, strict=True):
        m = policy["metrics"]
        mismatch = f"{m['mismatch_kl']:.4f}" if m.get("mismatch_tokens") else "-"
        lines.append(
            f"  {policy['version']:4d}  {reward:6.2f}  {passed:4.2f}"
            f"  {m.get('groups', 0):6.0f}  {m.get('groups_dropped', 0):9.0f}  {m.get('entropy', math.nan):7.2f}"
            f"  {mismatch:>11}  {m.get('grad_norm', math.nan):9.2f}"
            f"  {m.get('staleness_mean', 0):9.2f}  {m.get('cpu_s', math.nan):5.1f}"
        )
    lines.append("  no signal: groups of equal rewards, refilled; mismatch KL: sampler against trainer, nats a token")
    return lines


def _metric(steps: list[dict[str, Any]], name: str) -> list[float]:
    return [float(policy["metrics"].get(name, math.nan)) for policy in steps]


def _cost_lines(totals: dict[str, Any], summary: dict[str, Any], archive: Archive) -> list[str]:
    seconds = max(1e-9, (totals["last"] or 0) - (totals["first"] or 0))
    starts, claims = archive.numbers("start_s"), archive.numbers("claim_s")
    lines = [
        f"Rollouts {totals['rollouts']} in {seconds:.0f} s: {totals['rollouts'] / seconds:.1f} a second, "
        f"{(totals['tokens'] or 0) / seconds:.0f} sampled tokens a second; "
        f"{totals['ungraded']} without a verdict, {totals['retried']} tried again",
        f"Training groups {totals['train_groups']}, of which {totals['dropped_groups']} without signal (refilled)",
        f"Sandboxes {totals['sandboxes'] or 0:.0f} used once each "
        f"({totals['cached'] or 0:.0f} gradings answered by an identical one); "
        f"start p50 {_ms(starts, 0.5)}, p95 {_ms(starts, 0.95)}; claim p50 {_ms(claims, 0.5)}, p95 {_ms(claims, 0.95)}",
    ]
    if summary:
        services = ", ".join(f"{name} {cost:.0f}" for name, cost in summary.get("cpu_by_service", {}).items())
        sessions = len(summary.get("sessions", ()))
        over = f" over {sessions} sessions" if sessions > 1 else ""
        lines.append(f"Wall {summary['wall_s']:.0f} s{over}, CPU {summary['cpu_s']:.0f} s ({services})")
        if summary.get("restarts"):
            lines.append("Restarted: " + ", ".join(f"{k} {v}x" for k, v in summary["restarts"].items()))
    return lines


def _ms(values: list[float], share: float) -> str:
    return f"{stats.percentile(values, share) * 1000:.0f} ms" if values else "-"


def _where_lines(run_path: Path, policies: list[dict[str, Any]], model: str) -> list[str]:
    lines = []
    trained = bool(policies) and policies[-1]["version"] > 0
    if trained:
        lines.append(
            f"Model after training: {policies[-1]['path']} (Hugging Face directory, version {policies[-1]['version']})"
        )
    checkpoints = sorted((run_path / "checkpoints").glob("*")) if (run_path / "checkpoints").is_dir() else []
    if checkpoints:
        lines.append(f"Checkpoint (model, optimiser, position): {checkpoints[-1]}")
    lines += [
        f"All rollouts: {run_path}/archive/rollouts/*.parquet; log of every service: {run_path}/up.log",
        f"Look deeper: tiltyard report {run_path.name}; or in Python:",
        f"  import duckdb; duckdb.sql(\"SELECT domain, action FROM '{run_path}/archive/rollouts/*.parquet'\").show()",
    ]
    if model.startswith("smollm2"):
        rise = (
            " The rise is mostly reliability (answering every time as it could answer sometimes), not new skill."
            if trained
            else ""
        )
        lines.append(f"Read this honestly: the model is SmolLM2-135M-Instruct rounded to 4 bits.{rise}")
    return lines


def read_summary(run_path: Path) -> dict[str, Any]:
    """The supervisor's summary of the run; empty when it ran elsewhere."""
    try:
        summary = msgspec.json.decode((run_path / "summary.json").read_bytes(), type=Summary)
    except (OSError, msgspec.DecodeError):
        return {}
    return msgspec.structs.asdict(summary)


def text(run: RunSettings, run_path: Path) -> str:
    """The whole report."""
    archive, summary = Archive(run_path), read_summary(run_path)
    head = f"Run {run.name}: model {run.model}, seed {run.seed}, {summary.get('state', 'unknown state')}"
    if archive.empty:
        damaged = "".join(f"\nCan't be read: {part}" for part in archive.damaged)
        return f"{head}\nNo rollout has been archived yet in {run_path}{damaged}"
    policies = archive.policies()
    if archive.damaged:
        head += "\nLeft out, since they can't be read: " + ", ".join(str(part) for part in archive.damaged)
    sections = [
        [head],
        _evaluation_lines(rises(archive, run)),
        _curve_lines(policies),
        _cost_lines(archive.totals(), summary, archive),
        _where_lines(run_path, policies, run.model),
    ]
    return "\n\n" + "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def rows(run: RunSettings, run_path: Path) -> list[Row]:
    """Every figure of the run with its target."""
    archive, summary = Archive(run_path), read_summary(run_path)
    if archive.empty:
        return []
    found: list[Row] = []
    for rise in rises(archive, run):
        found += _rise_rows(rise)
    found += _run_rows(archive, run)
    if summary:
        wall, cpu = float(summary["wall_s"]), float(summary["cpu_s"])
        found.append(
            Row(
                measure="wall time", value=wall, unit="s", target=f"<= {WALL_TARGET_S:.0f}", holds=wall <= WALL_TARGET_S
            )
        )
        found.append(
            Row(
                measure="CPU time, all processes",
                value=cpu,
                unit="s",
                target=f"<= {CPU_TARGET_S:.0f}",
                holds=cpu <= CPU_TARGET_S,
            )
        )
        found += [Row(measure=f"CPU time, {k}", value=float(v), unit="s") for k, v in summary["cpu_by_service"].items()]
    return [
        msgspec.structs.replace(row, value=None) if row.value is not None and math.isnan(row.value) else row
        for row in found
    ]


def _rise_rows(rise: Rise) -> list[Row]:
    name = rise.domain
    found = []
    for label, evaluation in (("before", rise.first), ("after", rise.last)):
        rate = stats.wilson(evaluation.passed, evaluation.rollouts)
        enough = evaluation.rollouts >= MIN_EVAL_ROLLOUTS
        target, holds = (f">= {MIN_EVAL_ROLLOUTS}", enough) if rise.trained else ("", None)
        found += [
            Row(measure=f"{name}: held-out pass rate {label}", value=rate.value, unit="share"),
            Row(measure=f"{name}: pass rate {label}, low", value=rate.low, unit="share"),
            Row(measure=f"{name}: pass rate {label}, high", value=rate.high, unit="share"),
            Row(
                measure=f"{name}: held-out rollouts {label}",
                value=evaluation.rollouts,
                unit="rollouts",
                target=target,
                holds=holds,
            ),
        ]
    target, holds = ("95 % interval above 0", rise.rise.low > 0) if rise.trained else ("", None)
    found += [
        Row(measure=f"{name}: rise", value=rise.rise.value, unit="share"),
        Row(measure=f"{name}: rise, low", value=rise.rise.low, unit="share", target=target, holds=holds),
        Row(measure=f"{name}: rise, high", value=rise.rise.high, unit="share"),
    ]
    return found


def _run_rows(archive: Archive, run: RunSettings) -> list[Row]:
    totals, policies = archive.totals(), archive.policies()
    seconds = max(1e-9, totals["last"] - totals["first"])
    starts, claims = archive.numbers("start_s"), archive.numbers("claim_s")
    stale = max((float(p["metrics"].get("staleness_max", 0)) for p in policies), default=0.0)
    limit = min((float(p["metrics"].get("staleness_limit", run.staleness)) for p in policies[1:]), default=0.0)
    updates = max((p["version"] for p in policies), default=0)
    return [
        Row(
            measure="policy updates",
            value=float(updates),
            unit="steps",
            target=f"<= {run.steps}",
            holds=updates <= run.steps,
        ),
        Row(measure="rollouts", value=float(totals["rollouts"]), unit="rollouts"),
        Row(measure="rollouts a second", value=totals["rollouts"] / seconds, unit="1/s"),
        Row(
            measure="rollouts without a verdict",
            value=float(totals["ungraded"]),
            unit="rollouts",
            target="0",
            holds=totals["ungraded"] == 0,
        ),
        Row(measure="training groups", value=float(totals["train_groups"]), unit="groups"),
        Row(
            measure="training groups without signal",
            value=float(totals["dropped_groups"]),
            unit="groups",
        ),
        Row(
            measure="staleness, highest",
            value=stale,
            unit="versions",
            target=f"<= {limit:g}",
            holds=stale <= limit,
        ),
        Row(measure="sandboxes started", value=float(totals["sandboxes"] or 0), unit="sandboxes"),
        Row(measure="gradings answered by an identical one", value=float(totals["cached"] or 0), unit="gradings"),
        *[
            Row(measure=f"sandbox {name}, p{int(share * 100)}", value=stats.percentile(values, share) * 1000, unit="ms")
            for name, values in (("start", starts), ("claim", claims))
            for share in (0.5, 0.95)
        ],
    ]


def write_rows(path: Path, run: RunSettings, run_path: Path) -> None:
    """Write the rows as JSON; UserError when it can't be written."""
    content = msgspec.json.format(msgspec.json.encode(rows(run, run_path)), indent=1) + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise UserError(f"--results {path}: {error.strerror}") from error


def main(arguments: Namespace) -> int:
    source = source_of(arguments)
    run = section(source, "run", RunSettings)
    name = check_run(arguments.run or run.name)
    run_path = section(source, "data", DataSettings).run_path(name)
    if not run_path.is_dir():
        known = ", ".join(sorted(path.name for path in run_path.parent.glob("*"))) or "none"
        raise UserError(f"no run {name!r} in {run_path.parent}; runs there: {known}")
    stored = run_path / "run.json"
    if stored.is_file():
        try:
            run = msgspec.json.decode(stored.read_bytes(), type=RunSettings)
        except msgspec.DecodeError as error:
            raise UserError(f"{stored} is damaged: {error}; remove it to use the configured run") from error
    print(text(run, run_path))
    if arguments.results is not None:
        write_rows(arguments.results, run, run_path)
    return 0
