"""What `domains_check` measures of the verifiers, each a function that returns rows."""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio

from tiltyard.domains import Domain, load, load_all
from tiltyard.gate.cases import judge, read_cases
from tiltyard.gate.grading import Grader, sandboxed
from tiltyard.gate.probes import solution
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard.verifier import limits
from tiltyard.verifier.kinds.registry import AnyKind, installed
from tiltyard_proto.messages import Task, Verdict

ROOT = Path(__file__).resolve().parents[1]
FURTHER = ROOT.parent / "shared/cases/verifier_cases.jsonl"
SETTINGS = SandboxSettings(pool={})
EQUAL = "class Same:\n    def __eq__(self, other): return True\n    def __hash__(self): return 0\n"
BOMBS = (
    "$9^{9^{9^{9}}}$",
    "\\boxed{2^{2^{2^{2^{2^{2}}}}}}",
    "(" * 20_000,
    "9" * 60_000,
    "\\frac{1}{" * 5_000 + "2" + "}" * 5_000,
)


def row(measure: str, value: Any, unit: str, target: str, holds: bool) -> dict[str, Any]:
    return {"measure": measure, "value": value, "unit": unit, "target": target, "holds": holds}


async def cases(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Our own cases, and those of the further files, each through the real path."""
    files = [*sorted((ROOT / "tests/cases").glob("*.jsonl")), *arguments.cases]
    if FURTHER.is_file() and FURTHER not in files:
        files.append(FURTHER)
    rows: list[dict[str, Any]] = []
    own, held = 0, 0
    async with sandboxed(SETTINGS) as worker:
        grader = Grader(installed(), worker)
        for path in files:
            found = [await judge(case, grader) for case in read_cases(path)]
            right = sum(one.holds for one in found)
            for one in found:
                if not one.holds:
                    print(f"{path.name}: {one.kind} {one.id}: {one.verdict}, wanted {one.wanted}: {one.reasons[:1]}")
            if path.is_relative_to(ROOT / "tests"):
                own, held = own + len(found), held + right
            else:
                rows.append(row(f"cases of {path.name}", right, f"of {len(found)}", "all", right == len(found)))
    limits.close()
    return [row("own cases", held, f"of {own}", "all", held == own), *rows]


def code_domains(kinds: dict[str, AnyKind]) -> Iterable[Domain]:
    """One domain of each kind that runs what the policy wrote."""
    seen: set[str] = set()
    for domain in load_all().values():
        kind = domain.definition.verifier.kind
        if kinds[kind].executes and domain.definition.category == "code" and kind not in seen:
            seen.add(kind)
            yield domain


async def forgeries(_: argparse.Namespace) -> list[dict[str, Any]]:
    """Every bad submission that the kinds know of, on every kind that runs code."""
    rows, kinds = [], installed()
    async with sandboxed(SETTINGS) as worker:
        grader = Grader(kinds, worker)
        for domain in code_domains(kinds):
            kind = kinds[domain.definition.verifier.kind]
            task = domain.tasks(domain.definition.splits[0], 1)[0]
            bad = [probe for probe in kind.probes(task) if probe.wanted != "accept"]
            verdicts = [await grader.verdict(task, probe.texts) for probe in bad]
            taken = [
                probe.name for probe, found in zip(bad, verdicts, strict=True) if found.passed or found.score is None
            ]
            honest = (await grader.verdict(task, solution(task, kind))).passed
            what = f"{len(bad)} forgeries on {kind.name}: accepted"
            rows.append(row(what, len(taken), "", "0", not taken and honest and len(bad) >= 16))
    return rows


async def humaneval(_: argparse.Namespace) -> list[dict[str, Any]]:
    """All 164 problems: references, programs that only end, objects equal to everything."""
    tasks, kinds = load("code.python.humaneval").tasks("eval", 164), installed()
    counts = {"references": 0, "os._exit(0)": 0, "equal to everything": 0}
    async with sandboxed(SETTINGS) as worker:
        grader, limiter = Grader(kinds, worker), anyio.CapacityLimiter(2)

        async def one(name: str, task: Task, text: str) -> None:
            async with limiter:
                counts[name] += (await grader.verdict(task, (text,))).passed

        async with anyio.create_task_group() as group:
            for task in tasks:
                function = task.verification.data["function"]
                group.start_soon(one, "references", task, task.reference)
                ending = f"```python\nimport os\nos._exit(0)\ndef {function}(*a): pass\n```"
                group.start_soon(one, "os._exit(0)", task, ending)
                same = f"```python\n{EQUAL}def {function}(*a, **k): return Same()\n```"
                group.start_soon(one, "equal to everything", task, same)
    return [
        row(f"HumanEval: {name} accepted", value, "of 164", wanted, value == int(wanted))
        for (name, value), wanted in zip(counts.items(), ("164", "0", "0"), strict=True)
    ]


async def rates(_: argparse.Namespace) -> list[dict[str, Any]]:
    """Verdicts per CPU second: a rule on mathematics, and calls of a function in the sandbox."""
    kinds = installed()
    maths = [domain for domain in load_all().values() if domain.definition.verifier.kind == "math"]
    chosen = maths[:: max(1, len(maths) // 12)] or [load("math.arithmetic.chain_sum")]
    tasks = [task for domain in chosen for task in domain.tasks(domain.definition.splits[0], 20)]
    found = [await Grader(kinds).verdict(task, (task.reference,)) for task in tasks]
    limits.close()
    async with sandboxed(SETTINGS) as worker:
        grader = Grader(kinds, worker)
        functions = load("code.python.functions").tasks("train", 60)
        await grader.verdict(functions[0], (functions[0].reference,))
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.process_time()
        ran = [await grader.verdict(task, (task.reference,)) for task in functions]
        spent = time.process_time() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [
        _rate("verdicts of mathematics", found, sum(one.cpu_s for one in found), 100),
        _rate("verdicts of function tests in gVisor, its starts included", ran, spent, 15),
    ]


def _rate(what: str, found: list[Verdict], cpu_s: float, least: int) -> dict[str, Any]:
    rate = len(found) / max(cpu_s, 1e-9)
    holds = rate >= least and all(one.passed for one in found)
    return row(what, round(rate, 1), "per CPU second", f">= {least}", holds)


async def bombs(_: argparse.Namespace) -> list[dict[str, Any]]:
    """Answers that blow up: how long the verdict takes, and what the verifier's memory does."""
    kinds = installed()
    maths = [domain for domain in load_all().values() if domain.definition.verifier.kind == "math"]
    task = (maths or [load("math.arithmetic.chain_sum")])[0].tasks("train", 1)[0]
    grader = Grader(kinds)
    await grader.verdict(task, (task.reference,))
    before, slowest, accepted = _rss(), 0.0, 0
    for text in BOMBS:
        begun = time.monotonic()
        accepted += (await grader.verdict(task, (text,))).passed
        slowest = max(slowest, time.monotonic() - begun)
    honest = (await grader.verdict(task, (task.reference,))).passed
    grown = (_rss() - before) / (1 << 20)
    limits.close()
    return [
        row("slowest verdict on a bomb", round(slowest, 2), "s", "<= 3", slowest <= 3 and not accepted and honest),
        row("verifier memory grown by bombs", round(grown, 1), "MiB", "<= 32", grown <= 32),
    ]


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
