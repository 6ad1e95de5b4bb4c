"""Goals in small worlds with tools: the prompt shows the state and the tools, the answer is a plan of calls.

Levels differ in how many rows there are and how many goals stand together. A template is a kind of goal; goals are
drawn one after the other on the state that the earlier ones leave, by the same rules as the tools'.
Invariants: a goal's calls succeed in the state at hand; goals of one task touch different rows, so that their order
doesn't matter.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tiltyard.domains.drafts import Draft, Request

State = dict[str, dict[str, dict[str, Any]]]
Call = dict[str, Any]


@dataclass(frozen=True)
class Goal:
    """What is asked for, the calls that do it, and the rows that they touch ("table/key")."""

    text: str
    calls: tuple[Call, ...]
    rows: frozenset[str]


@dataclass(frozen=True)
class WorldKind:
    """A kind of world."""

    intro: str
    state: Callable[[random.Random, int], State]
    """Draws the tables, with about so many rows."""
    actions: tuple[dict[str, Any], ...]
    goals: dict[str, Callable[[random.Random, State], Goal | None]]
    """By template; None where the state has no such goal."""


def action(name: str, description: str, parameters: dict[str, str], *steps: dict[str, Any]) -> dict[str, Any]:
    """A tool with required parameters of the given JSON types, and its steps."""
    properties: dict[str, Any] = {key: {"type": kind} for key, kind in parameters.items()}
    for each in properties.values():
        if each["type"] == "integer":
            each["minimum"] = 1
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"tool": {"name": name, "description": description, "parameters": schema}, "steps": list(steps)}


def step(op: str, table: str, key: Any, field: str = "", value: Any = None) -> dict[str, Any]:
    return {"op": op, "table": table, "key": key, "field": field, "value": value}


def call(name: str, **arguments: Any) -> Call:
    return {"name": name, "arguments": arguments}


def goal(text: str, calls: list[Call], *rows: str) -> Goal | None:
    """A goal, or None when there is nothing to do."""
    return Goal(text, tuple(calls), frozenset(rows)) if calls else None


def ids(rng: random.Random, prefix: str, count: int) -> list[str]:
    """Distinct keys."""
    return [f"{prefix}{number}" for number in rng.sample(range(100, 999), count)]


_PROMPT = """{intro}

State:
{state}

Tools:
{tools}

{tasks}

Reply with one JSON list of calls that does exactly this and nothing else, each call as \
{{"name": ..., "arguments": {{...}}}}."""


def generate(request: Request) -> Iterator[Draft]:
    """Tasks of one world, endlessly. Options: `world`, `rows`, `goals`."""
    from .worlds import WORLDS  # it is made of this module's parts

    options = request.options
    world: WorldKind = WORLDS[options["world"]]
    wanted = [name for name in world.goals if request.wants(name)]
    rng = random.Random(f"world/{options['world']}/{request.split}/{request.seed}/{sorted(options.items())}")
    while wanted:
        state = world.state(rng, options["rows"])
        names = [rng.choice(wanted)]
        names += [rng.choice(wanted) for _ in range(options["goals"] - 1)]
        if found := _apart(rng, world, state, names):
            yield _draft(world, names[0], state, found)


def _apart(rng: random.Random, world: WorldKind, state: State, names: list[str]) -> list[Goal]:
    """A goal of each name that touches rows of its own; a name for which that can't be is left out."""
    found: list[Goal] = []
    for name in names:
        tries = (world.goals[name](rng, state) for _ in range(12))
        taken = frozenset[str]().union(*(each.rows for each in found))
        one = next((each for each in tries if each is not None and not each.rows & taken), None)
        found += [one] if one is not None else []
    return found


def _draft(world: WorldKind, template: str, state: State, goals: list[Goal]) -> Draft:
    calls = [each for one in goals for each in one.calls]
    shown = "\n".join(f"{table} {key}: {json.dumps(row)}" for table, rows in state.items() for key, row in rows.items())
    tools = "\n".join(json.dumps(each["tool"]) for each in world.actions)
    tasks = (
        "\n".join(f"{number}. {one.text}" for number, one in enumerate(goals, 1)) if len(goals) > 1 else goals[0].text
    )
    return Draft(
        template=template,
        fields={"prompt": _PROMPT.format(intro=world.intro, state=shown, tools=tools, tasks=tasks)},
        data={"state": state, "actions": list(world.actions), "calls": calls},
        reference=json.dumps(calls),
        labels={"calls": str(len(calls)), "rows": str(sum(map(len, state.values())))},
    )
