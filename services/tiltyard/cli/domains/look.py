"""`tiltyard domains ls`, `show` and `sample`: what there is to train on."""

from __future__ import annotations

import sys
from argparse import Namespace

import msgspec

from tiltyard.domains import Domain, registry
from tiltyard.domains.drafts import Split
from tiltyard.gate.registry import Gate
from tiltyard.gate.report import Report
from tiltyard.gate.store import Store
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Task


def _reports(domains: dict[str, Domain]) -> dict[str, Report]:
    """What the gate said of the present content of these domains."""
    return Gate(registry.load_all(), Store(), SandboxSettings()).known(list(domains))


def _gate(report: Report | None) -> str:
    return "not checked" if report is None else "passed" if report.passed else "failed"


def ls_main(arguments: Namespace) -> int:
    """A line for each domain."""
    every, asked = registry.load_all(), arguments.beginning
    found = {name: one for name, one in every.items() if f"{name}.".startswith(f"{asked}." if asked else "")}
    reports = _reports(found)
    if arguments.json:
        rows = [
            {"name": name, "kind": one.definition.verifier.kind, "title": one.definition.title}
            | {"level": one.definition.level, "splits": one.definition.splits, "trained": one.definition.trained}
            | {"profile": one.definition.profile, "gate": _gate(reports.get(name))}
            for name, one in found.items()
        ]
        sys.stdout.write("".join(msgspec.json.encode(row).decode() + "\n" for row in rows))
        return 0
    for name, one in found.items():
        d = one.definition
        print(f"{name:44} {d.verifier.kind:16} {'+'.join(d.splits):11} {_gate(reports.get(name)):12} {d.title}")
    print(f"{len(found)} domains")
    return 0


def show_main(arguments: Namespace) -> int:
    """A definition as JSON, where it comes from, and its gate."""
    domain = registry.load(arguments.name)
    print(msgspec.json.format(msgspec.json.encode(domain.definition), indent=2).decode())
    report = _reports({domain.name: domain}).get(domain.name)
    print(f"# from {domain.source}", f"# gate: {_gate(report)}", sep="\n")
    for problem in report.problems if report else ():
        print(f"#   {problem.check}: {problem.detail}")
    return 0


def sample_main(arguments: Namespace) -> int:
    """Tasks of a domain, for people or as JSON lines."""
    domain = registry.load(arguments.name)
    split: Split = arguments.split or domain.definition.splits[0]
    for task in domain.tasks(split, arguments.n, arguments.seed):
        sys.stdout.write(msgspec.json.encode(task).decode() + "\n" if arguments.json else _shown(task))
    return 0


def _shown(task: Task) -> str:
    lines = [f"=== {task.id}  template {task.template}  {task.labels or ''}"]
    lines += [f"[{message.role}]\n{message.content}" for message in task.prompt]
    lines += [f"[file {name}, {len(content)} bytes]" for name, content in task.environment.files.items()]
    return "\n".join([*lines, f"[reference]\n{task.reference}", ""]) + "\n"
