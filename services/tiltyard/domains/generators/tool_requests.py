"""Requests to an assistant with tools: which calls, with which arguments.

Levels differ in how many tools there are, how many calls are wanted, how often no tool fits, and whether an earlier
turn's result is needed. A template is the tool that is asked for; whole tools are held out for evaluation.
Invariants: every argument is said in the request or in the conversation; an argument that is not said has its default.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

from tiltyard.domains.drafts import Draft, Request
from tiltyard_proto.messages import ChatMessage

from . import tool_sets

_RULES = (
    "You can call these tools:\n{tools}\n\nReply with one JSON list of calls and nothing else, each call as "
    '{{"name": ..., "arguments": {{...}}}}. Leave out arguments that aren\'t asked for. If no tool fits, reply with [].'
)
_STYLES = ("Please {}.", "I'd like you to {}.", "{}, please.", "Can you {}?", "We need to {}.")
_LATER = ("Now {}.", "Thanks. Next, {}.", "Good. And then {}.")
Call = dict[str, Any]


def generate(request: Request) -> Iterator[Draft]:
    """Requests, endlessly. Options: `set`, `tools` (offered), `calls` (at most), `unfit` (share), `turns` (before)."""
    options = request.options
    chosen = tool_sets.SETS[options["set"]]
    wanted = [tool for tool in chosen if request.wants(tool[0])]
    rng = random.Random(f"tools/{options['set']}/{request.split}/{request.seed}/{sorted(options.items())}")
    while wanted:
        main = rng.choice(wanted)
        if rng.random() < options.get("unfit", 0.0):
            yield _unfit(rng, chosen, main, options)
            continue
        count = rng.randint(min(2, options.get("calls", 1)), options.get("calls", 1))
        tools = [main, *(rng.choice(wanted) for _ in range(count - 1))]
        made = [_made(rng, tool) for tool in tools]
        offered = _offered(rng, chosen, tools, options["tools"])
        earlier = [_made(rng, rng.choice(tools)) for _ in range(options.get("turns", 0))]
        yield _draft(rng, main[0], offered, made, earlier)


def _made(rng: random.Random, tool: tool_sets.Tool) -> tuple[Call, str]:
    """A call, and the clause that asks for it."""
    name, _, parameters, clause = tool
    arguments = {each: tool_sets.draw(rng, drawn) for each, drawn in parameters.items()}
    while "origin" in arguments and arguments["origin"] == arguments["destination"]:
        arguments["origin"] = tool_sets.draw(rng, "city")
    for each, drawn in parameters.items():
        if drawn == "bool?":
            clause = re.sub(rf"\{{{each}\|([^}}]*)\}}", r"\1" if arguments[each] else "", clause)
    said = {each: _shown(value) for each, value in arguments.items()}
    kept = {each: value for each, value in arguments.items() if parameters[each] != "bool?" or value}
    return {"name": name, "arguments": kept}, clause.format_map(said)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(map(str, value)) if all(isinstance(each, str) for each in value) else json.dumps(value)
    return str(value)


def _offered(
    rng: random.Random, chosen: tuple[tool_sets.Tool, ...], tools: list[tool_sets.Tool], count: int
) -> list[tool_sets.Tool]:
    """The tools in the prompt: those that are needed, and others up to `count`."""
    needed = {tool[0]: tool for tool in tools}
    near = [tool for tool in chosen if tool[0] not in needed]
    far = [tool for each in tool_sets.SETS.values() if each is not chosen for tool in each]
    extra = (rng.sample(near, len(near)) + rng.sample(far, len(far)))[: max(0, count - len(needed))]
    found = [*needed.values(), *extra]
    rng.shuffle(found)
    return found


def _unfit(
    rng: random.Random, chosen: tuple[tool_sets.Tool, ...], main: tool_sets.Tool, options: dict[str, Any]
) -> Draft:
    """A request for which no tool is offered."""
    _, clause = _made(rng, main)
    others = [tool for each in tool_sets.SETS.values() if each is not chosen for tool in each]
    offered = rng.sample(others, max(1, options["tools"] - 2))
    return _task(main[0], offered, (("user", _sentence(rng, _STYLES, clause)),), [])


def _draft(
    rng: random.Random,
    template: str,
    offered: list[tool_sets.Tool],
    made: list[tuple[Call, str]],
    earlier: list[tuple[Call, str]],
) -> Draft:
    """A task with the `earlier` calls as turns before the request."""
    said: list[tuple[str, str]] = []
    for call, clause in earlier:
        said.append(("user", _sentence(rng, _STYLES, clause)))
        said.append(("assistant", json.dumps([call])))
    clauses = [clause for _, clause in made]
    if earlier and (word := _reference_back(rng, said, made)):
        clauses = [word]
    text = _sentence(rng, _LATER if earlier else _STYLES, "; and ".join(clauses))
    return _task(template, offered, (*said, ("user", text)), [call for call, _ in made])


def _reference_back(rng: random.Random, said: list[tuple[str, str]], made: list[tuple[Call, str]]) -> str:
    """With one call, the same as the first one made but for one argument that is said; '' where that can't be."""
    first = json.loads(said[1][1])[0]
    call = made[0][0]
    if len(made) != 1 or first["name"] != call["name"] or set(first["arguments"]) != set(call["arguments"]):
        return ""
    key = rng.choice(list(first["arguments"]))
    if first["arguments"][key] == call["arguments"][key]:
        return ""
    call["arguments"] = {**first["arguments"], key: call["arguments"][key]}
    return f"do what I asked for first once more, but with {key} set to {_shown(call['arguments'][key])}"


def _sentence(rng: random.Random, styles: tuple[str, ...], clause: str) -> str:
    text = rng.choice(styles).format(clause)
    return text[0].upper() + text[1:]


def _task(template: str, offered: list[tool_sets.Tool], said: tuple[tuple[str, str], ...], calls: list[Call]) -> Draft:
    tools = [
        {"name": name, "description": description, "parameters": tool_sets.schema(parameters)}
        for name, description, parameters, _ in offered
    ]
    rules = _RULES.format(tools="\n".join(json.dumps(tool) for tool in tools))
    first = f"{rules}\n\n{said[0][1]}"
    return Draft(
        template=template,
        messages=tuple(
            ChatMessage(role=role, content=first if not at else text) for at, (role, text) in enumerate(said)
        ),
        data={"tools": tools, "calls": calls},
        reference=json.dumps(calls),
        labels={"calls": str(len(calls)), "tools": str(len(tools)), "turns": str(len(said) // 2)},
    )
