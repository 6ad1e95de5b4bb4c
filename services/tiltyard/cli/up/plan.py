"""What a run's configuration asks for, checked against the domains there are, and the tasks that follow from it.

Invariants: nothing here touches the machine or the bus; a mistake names where it was made, the key and the mend.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from tiltyard.domains import registry
from tiltyard.domains.drafts import Split
from tiltyard.gate import admission
from tiltyard.kit.settings import RunSettings, SettingsError, Source
from tiltyard_proto.messages import Task

SPLITS: dict[str, Split] = {"train": "train", "evaluate": "eval"}
"""The split that each table of the run draws from."""


def check_run(run: RunSettings, source: Source) -> None:
    """SettingsError unless the run has something to do and each of its domains has the split it is asked for."""
    origin = {key: source.origins.get(f"run.{key}", source.file) for key in ("steps", "train", "evaluate")}
    if run.steps and not run.train:
        raise SettingsError(
            f"{origin['train']}: [run.train]: expected at least one domain to train on for the {run.steps} steps "
            "of run.steps (`tiltyard domains` lists them), or run.steps = 0 to evaluate only"
        )
    if not run.steps and not run.evaluate:
        raise SettingsError(
            f"{origin['evaluate']}: [run.evaluate]: expected at least one domain, since run.steps = 0 evaluates only; "
            "`tiltyard domains` lists them"
        )
    for key, split in SPLITS.items():
        for name in getattr(run, key):
            _check_domain(name, key, split, origin[key])
    _check_gate(run, origin)


def _check_gate(run: RunSettings, origin: Mapping[str, str]) -> None:
    """SettingsError for a domain that the entry gate has failed as it is now."""
    reports = admission.reports_on({*run.train, *run.evaluate})
    for key in SPLITS:
        for name in getattr(run, key):
            if why := admission.refusal(reports.get(name)):
                raise SettingsError(
                    f"{origin[key]}: [run.{key}]: domain {name} does not pass the entry gate: {why}; "
                    f"see `tiltyard domains check {name}`"
                )


def _check_domain(name: str, key: str, split: Split, origin: str) -> None:
    try:
        splits = registry.load(name).definition.splits
    except ValueError as error:
        raise SettingsError(f"{origin}: [run.{key}]: {error}") from error
    if split not in splits:
        raise SettingsError(
            f"{origin}: [run.{key}]: domain {name} has no tasks of split {split!r}, only {', '.join(splits)}"
        )


def check_together(sections: Mapping[str, Any], source: Source) -> None:
    """SettingsError when tables that must agree do not: the engine that is started and the one that is asked."""
    processes, port = sections["supervisor"].services, sections["engine"].port
    if processes.get("engine", 0) > 1:
        origin = source.origins.get("supervisor.services", source.file)
        raise SettingsError(f"{origin}: [supervisor] services: engine: expected 0 or 1, they would share one port")
    asked = {urlsplit(url).port for url in sections["gateway"].engines}
    if processes.get("engine") and processes.get("gateway") and port not in asked:
        origin = source.origins.get("engine.port", source.origins.get("gateway.engines", source.file))
        raise SettingsError(
            f"{origin}: [gateway] engines: none of {', '.join(sections['gateway'].engines)} is the engine that is "
            f"started on port {port} ([engine] port): add http://127.0.0.1:{port}, or start no engine with "
            "--set supervisor.services.engine=0"
        )


def run_tasks(run: RunSettings) -> list[Task]:
    """The tasks that a run's configuration names, from its domains' generators; without those in which the gate has
    found a fault."""
    reports, tasks = admission.reports_on({*run.train, *run.evaluate}), list[Task]()
    for key, split in SPLITS.items():
        for name, share in getattr(run, key).items():
            faulty = len(reports[name].faulty) if name in reports else 0
            drawn = registry.load(name).tasks(split, share.tasks + faulty, run.seed)
            tasks += admission.without_faulty(drawn, reports)[: share.tasks]
    return tasks
