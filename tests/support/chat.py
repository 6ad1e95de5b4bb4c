"""A chat template over bytes for tests of the gateway: id = byte value, three control ids."""

from __future__ import annotations

from collections.abc import Sequence

END, USER, ASSISTANT = 2, 1, 3


class ByteChat:
    """Renders `<user>text<end><assistant>`; text is UTF-8 bytes, so ids and text differ by nothing but control ids."""

    eos_ids = frozenset({END})
    vocab_size = 256
    context_length = 512

    def render(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        ids: list[int] = []
        for _role, content in messages:
            ids += [USER, *content.encode(), END]
        return [*ids, ASSISTANT]

    def continuation(self, action_ids: Sequence[int], role: str, content: str) -> list[int]:
        close = [] if action_ids and action_ids[-1] == END else [END]
        return [*close, USER, *content.encode(), END, ASSISTANT]

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(token for token in ids if token > ASSISTANT).decode("utf-8", "replace")
