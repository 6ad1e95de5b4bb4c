"""`tiltyard size`: how many of each service a rate of rollouts needs, from measured costs.

The costs are those of `make load` on the machine that `costs.json` names; `--costs FILE` takes others, such as the
`results/costs.json` of your own machine.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from tiltyard.cli.errors import UserError
from tiltyard.cli.main import source_of
from tiltyard.domains import registry
from tiltyard.domains.definition import Definition
from tiltyard.gateway.settings import GatewaySettings
from tiltyard.kit.settings import RunSettings, section
from tiltyard.verifier.kinds import registry as kinds
from tiltyard.verifier.kinds.base import Rule

from . import model
from .model import Costs, Need, Terms, Work

SHIPPED = Path(__file__).with_name("costs.json")


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """The answer."""

    rate: float
    domains: tuple[Work, ...]
    needs: tuple[Need, ...]
    assumptions: tuple[str, ...]


def read_costs(path: Path) -> Costs:
    """The costs in a file; UserError where it is wrong."""
    try:
        costs = msgspec.json.decode(path.read_bytes(), type=Costs)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise UserError(f"{path}: {error}; expected what `make load` writes to results/costs.json") from error
    missing = [
        name for name in (*model.SERVICES, model.SERVER) if name not in costs.answer.cpu_ms.keys() & costs.turns.cpu_ms
    ]
    if missing or not costs.turns.executed > 0 or not 0 < costs.answer.turns < costs.turns.turns:
        what = (
            f"no cost of {', '.join(missing)}" if missing else "expected answers of one turn, and of more that execute"
        )
        raise UserError(f"{path}: {what}; expected what `make load` writes to results/costs.json")
    return costs


def work_of(definition: Definition, share: float) -> Work:
    """What a rollout of a domain asks for, when it takes all its turns."""
    kind = kinds.installed().get(definition.verifier.kind)
    turns = 1 if definition.interface == "answer" else definition.limits.turns
    return Work(
        domain=definition.name,
        share=share,
        turns=turns,
        executed=0 if definition.interface == "answer" else turns,
        jobs=0 if isinstance(kind, Rule) else 1,
        tokens=definition.sampling.max_new_tokens,
    )


def check(terms: Terms) -> None:
    """UserError for terms that no machine has."""
    for option, value, least, most in (
        ("the rate", terms.rate, 0.0, 1e9),
        ("--busy", terms.busy, 0.0, 1.0),
        ("--turn-seconds", terms.turn_s, 0.0, 1e6),
        ("--node-cores", terms.node_cores, 0.0, 1e6),
    ):
        if not least < value <= most:
            raise UserError(f"{option}: {value:g}; expected a number above {least:g}, at most {most:g}")
    if not 0 <= terms.engine_tokens < float("inf"):
        raise UserError(f"--engine-tokens: {terms.engine_tokens:g}; expected a number above 0, or 0 for not known")


def parse_domain(text: str) -> tuple[str, float]:
    """'NAME' or 'NAME=SHARE'; UserError when the share is no number above 0."""
    name, equals, share = text.partition("=")
    try:
        value = float(share) if equals else 1.0
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UserError(f"--domain {text}: expected NAME or NAME=SHARE with a share above 0")
    return name, value


def works_of(arguments: Namespace) -> list[Work]:
    """The domains that were named, or those of the configured run, or one of plain answers."""
    chosen = dict(map(parse_domain, arguments.domain))
    if not chosen:
        run = section(source_of(arguments), "run", RunSettings)
        chosen = dict.fromkeys([*run.train, *run.evaluate], 1.0)
    if not chosen:
        return [Work(domain="(any domain of one turn that runs nothing)")]
    return [work_of(registry.load(name).definition, share) for name, share in chosen.items()]


def table(answer: Size) -> Table:
    """For people."""
    found = Table("service", "how many", "CPU ms a rollout", "cores busy", "why", box=None)
    for need in answer.needs:
        cpu = f"{need.cpu_ms:.2f}" if need.cpu_ms else ""
        found.add_row(need.service, str(need.count), cpu, f"{need.cores:.2f}" if need.cores else "", need.why)
    return found


def main(arguments: Namespace) -> int:
    costs = read_costs(arguments.costs or SHIPPED)
    gateway = section(source_of(arguments), "gateway", GatewaySettings)
    terms = Terms(
        rate=arguments.rate,
        busy=arguments.busy,
        turn_s=arguments.turn_seconds,
        slots=min(gateway.slots, gateway.max_in_flight * len(gateway.engines)),
        node_cores=arguments.node_cores,
        engine_tokens=arguments.engine_tokens,
    )
    check(terms)
    works = works_of(arguments)
    answer = Size(
        rate=terms.rate,
        domains=tuple(works),
        needs=tuple(model.size(costs, works, terms)),
        assumptions=tuple(model.assumptions(costs, terms)),
    )
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(answer)).decode())
        return 0
    console = Console(highlight=False, markup=False)
    console.print(f"{terms.rate:g} rollouts a second of {', '.join(work.domain for work in works)}")
    console.print(table(answer))
    console.print(f"{sum(need.cores for need in answer.needs):.1f} cores are busy in all. This assumes:")
    for line in answer.assumptions:
        console.print(f"- {line}")
    return 0
