"""Was a delivered message published to its stage, or placed there by the answer to a read?

A server checks which subject a client publishes to, not which reply subject it names. A user that may read can name
a subject of another stage as the reply, and the stage's stream stores the answer. Such answers give themselves away:
what a direct read returns carries the header `Nats-Stream`; what a pull or a push consumer returns keeps the
subject it was published under; an answer of the API is no message of ours. So a reader that checks before it decodes
takes only what its senders were allowed to publish.
Left out: direct reads by subject, where the server adds the same header itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tiltyard_proto.topology import PREFIX, Stage

READ = "Nats-Stream"


class Misplaced(ValueError):
    """The message was not published to the stage that it lies on."""


def check(stage: Stage[Any], subject: str, headers: Mapping[str, str]) -> None:
    """Misplaced unless a delivery of `stage` was published there."""
    if not subject.startswith(f"{PREFIX}.{stage.name}."):
        raise Misplaced(f"published as {subject}, stored on stage {stage.name}: somebody's read was answered here")
    if READ in headers:
        raise Misplaced(f"an answer to a read of {headers[READ]}, stored on stage {stage.name}")
