"""The committed AsyncAPI document describes the bus as it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.examples import EXAMPLES

from tiltyard_proto import topology
from tiltyard_proto.asyncapi import document, text
from tiltyard_proto.permissions import may_publish, names, services
from tiltyard_proto.topology import STAGES, Stage

COMMITTED = Path(__file__).parents[2] / "docs" / "asyncapi.json"


def resolve(reference: str) -> Any:
    found: Any = document()
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found


def test_the_committed_document_is_the_generated_one() -> None:
    """`docs/asyncapi.json` is what `python -m tiltyard_proto.asyncapi` prints."""
    assert COMMITTED.read_text() == text()


def test_it_is_an_asyncapi_3_document() -> None:
    """The required parts are there: version, info with title and version, actions, payloads."""
    made = document()
    assert made["asyncapi"] == "3.0.0"
    assert {"title", "version"} <= set(made["info"])
    assert {operation["action"] for operation in made["operations"].values()} == {"send", "receive"}
    assert all({"host", "protocol"} <= set(server) for server in made["servers"].values())
    for name in (*made["channels"], *made["operations"], *made["components"]["messages"]):
        assert re.fullmatch(r"[\w.-]+", name)


def test_every_reference_leads_somewhere() -> None:
    """No reference dangles, and none leads out of the document."""
    references = set(re.findall(r'"\$ref": "([^"]+)"', text()))
    assert len(references) > 30
    for reference in references:
        assert resolve(reference)


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: str(stage.name))
def test_a_channel_is_its_stage(stage: Stage[Any]) -> None:
    """The address matches the subjects, and the messages are those that the stage accepts."""
    channel = document()["channels"][stage.name]
    pattern = re.escape(channel["address"]).replace(r"\{domain\}", r"[\w-]+").replace(r"\{key\}", r"[\w-]+")
    accepted = [example for example in EXAMPLES.values() if stage.accepts(example)]
    assert all(re.fullmatch(pattern, stage.subject(example)) for example in accepted)
    assert set(channel["messages"]) == {type(example).__name__ for example in accepted}
    assert set(channel["parameters"]) == set(re.findall(r"\{(\w+)\}", channel["address"]))


def test_operations_are_what_the_permissions_allow() -> None:
    """A service has a send operation for a stage exactly when the server would take its message."""
    operations = document()["operations"]
    for stage in STAGES[:-1]:
        for user in services():
            assert (f"{user}_sends_{stage.name}" in operations) == may_publish(user, f"tilt.v1.{stage.name}.d.k")
            assert (f"{user}_receives_{stage.name}" in operations) == (user in names(stage.receiver))


def test_headers_are_those_that_are_sent() -> None:
    """The header schema requires what every message carries."""
    from tiltyard.kit import tracing

    headers = resolve("#/components/schemas/Headers")
    sent = {"Tilt-Schema", *tracing.headers(EXAMPLES["rollout"])}
    assert set(headers["required"]) <= sent <= set(headers["properties"])
    assert topology.encode(EXAMPLES["rollout"])[:1] != b"{"
