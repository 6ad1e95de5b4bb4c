"""Chat messages to token ids, through the model's own template, without ever re-encoding what the model sampled.

Invariants: a control token in the result comes from the template, never from a message; the ids of an action are not
touched, a continuation is only what follows them. Templates run in a sandboxed Jinja environment. Loads no torch.

How: the template is rendered with a placeholder in place of each content, so that the text the template wrote and the
text the message wrote stay apart. Control tokens are looked for in the former only; the plain text between two
control tokens is encoded as one piece, so that ordinary content gets the same ids as with any other implementation.

A prompt that was rendered before is not rendered again (the members of a group share one), unless the template asks
for the time.

Left out: templates that compute on the content itself (strip or split it): they see the placeholder.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from tiltyard.policy.config import read_config, read_json
from tiltyard.policy.token_bytes import TokenBytes

_MARK = "\ue0f0{}\ue0f1"
_MARKS = re.compile("\ue0f0(\\d+)\ue0f1")
KEPT_TOKENS = 1 << 20
"""Tokens of rendered prompts that are kept at most."""
SHORT, KEPT_TEXTS = 64, 10_000
"""Characters of a text whose ids are kept, and how many such texts."""


class ChatRenderer:
    """Renders messages for one model directory and decodes what the model answers."""

    def __init__(self, model_dir: Path) -> None:
        """Loads tokenizer, template and end tokens. Raises ValueError when the directory lacks one of them."""
        config = read_config(model_dir)
        tokenizer_path = model_dir / "tokenizer.json"
        definition = read_json(tokenizer_path)
        self._tokenizer = Tokenizer.from_file(str(tokenizer_path))
        self._control = {token["content"]: int(token["id"]) for token in definition.get("added_tokens", [])}
        definition["added_tokens"] = []
        self._plain = Tokenizer.from_str(msgspec.json.encode(definition).decode())
        self._settings = read_json(model_dir / "tokenizer_config.json")
        source = _template_source(model_dir, self._settings)
        self._template = _compile(source, model_dir)
        self._timeless = "strftime_now" not in source
        self._filled: dict[tuple[str, ...], str] = {}
        self._rendered: OrderedDict[tuple[tuple[str, str], ...], list[int]] = OrderedDict()
        self._kept = 0
        """Tokens in `_rendered`."""
        self._short: dict[str, tuple[int, ...]] = {}
        """Ids of short texts: what a template writes between messages, and usual observations."""
        self._bytes = TokenBytes(self._tokenizer, config.vocab_size)
        spellings = sorted(map(re.escape, self._control), key=len, reverse=True)
        self._control_pattern = re.compile(f"({'|'.join(spellings)})") if spellings else None
        self.eos_ids: frozenset[int] = frozenset(config.eos_token_ids)
        self.vocab_size: int = config.vocab_size
        self.context_length: int = config.max_position_embeddings

    def render(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Token ids of a conversation of (role, content) pairs, ending with the generation prompt of the next answer.

        Raises ValueError when the template refuses the roles or their order.
        """
        if not messages:
            raise ValueError("a conversation needs at least one message")
        key = tuple(messages)
        if (kept := self._rendered.get(key)) is not None:
            self._rendered.move_to_end(key)
            return kept.copy()
        text = self._fill([role for role, _ in messages])
        ids = self._encode(text, [content for _, content in messages])
        if self._timeless and len(ids) <= KEPT_TOKENS:
            self._keep(key, ids)
        return ids

    def _keep(self, key: tuple[tuple[str, str], ...], ids: list[int]) -> None:
        """Remember a rendered prompt, and forget those that were not asked for longest."""
        self._rendered[key] = ids.copy()
        self._kept += len(ids)
        while self._kept > KEPT_TOKENS:
            self._kept -= len(self._rendered.popitem(last=False)[1])

    def continuation(self, action_ids: Sequence[int], role: str, content: str) -> list[int]:
        """Token ids to append after exactly these sampled ids, so that the model can take its next turn.

        Closes the assistant's turn unless the action ends with the end-of-turn token, then adds one message and the
        generation prompt. Raises ValueError when the template cannot place a message after an answer.
        """
        text = self._fill(["user", "assistant", role])
        _, mark, after = text.partition(_MARK.format(1))
        if not mark or _MARK.format(2) not in after:
            raise ValueError(f"the chat template drops the assistant's turn or the {role!r} message: cannot continue")
        ids = self._encode(after, ["", "", content])
        if action_ids and ids and ids[0] == action_ids[-1] and ids[0] in self._control.values():
            return ids[1:]
        return ids

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text; spellings of control tokens in it stay text."""
        if len(text) > SHORT:
            return list(self._plain.encode(text, add_special_tokens=False).ids)
        known = self._short.get(text)
        if known is None:
            if len(self._short) >= KEPT_TEXTS:
                self._short.clear()
            known = self._short[text] = tuple(self._plain.encode(text, add_special_tokens=False).ids)
        return list(known)

    def encode_trusted(self, text: str) -> list[int]:
        """Token ids of a text that is a rendered prompt: spellings of control tokens become control tokens."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, without control tokens. Raises ValueError for an id outside the vocabulary."""
        if ids and not (min(ids) >= 0 and max(ids) < self.vocab_size):
            wrong = next(index for index in ids if not 0 <= index < self.vocab_size)
            raise ValueError(f"token id {wrong} is outside the vocabulary of {self.vocab_size}")
        return self._bytes.text(ids)

    @property
    def token_bytes(self) -> TokenBytes:
        """The bytes of every token of the vocabulary."""
        return self._bytes

    def _fill(self, roles: Sequence[str]) -> str:
        """The template's text around the contents of messages with these roles, and the generation prompt."""
        if (known := self._filled.get(tuple(roles))) is not None:
            return known
        text = self._run_template(roles)
        if self._timeless and len(self._filled) < 1000:
            self._filled[tuple(roles)] = text
        return text

    def _run_template(self, roles: Sequence[str]) -> str:
        messages = [{"role": role, "content": _MARK.format(index)} for index, role in enumerate(roles)]
        try:
            return self._template.render(
                messages=messages,
                add_generation_prompt=True,
                bos_token=_token_text(self._settings, "bos_token"),
                eos_token=_token_text(self._settings, "eos_token"),
            )
        except jinja2.TemplateError as error:
            raise ValueError(f"the chat template refuses the roles {list(roles)}: {error}") from error

    def _encode(self, template_text: str, contents: Sequence[str]) -> list[int]:
        """Encodes rendered text with placeholders: control tokens from the template, everything else as plain text."""
        ids: list[int] = []
        run: list[str] = []
        for piece, trusted in _pieces(template_text, contents):
            if not trusted or self._control_pattern is None:
                run.append(piece)
                continue
            for part in self._control_pattern.split(piece):
                if part not in self._control:
                    run.append(part)
                    continue
                ids += self.encode("".join(run))
                run.clear()
                ids.append(self._control[part])
        return ids + self.encode("".join(run))


def _pieces(template_text: str, contents: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Splits at the placeholders: (text of the template, True) and (content of a message, False), in order."""
    position = 0
    for mark in _MARKS.finditer(template_text):
        yield template_text[position : mark.start()], True
        yield contents[int(mark.group(1))], False
        position = mark.end()
    yield template_text[position:], True


def _compile(source: str, model_dir: Path) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"], autoescape=False
    )
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda pattern: datetime.now().astimezone().strftime(pattern)
    environment.filters["tojson"] = lambda value, **_: msgspec.json.encode(value).decode()
    try:
        return environment.from_string(source)
    except jinja2.TemplateError as error:
        raise ValueError(f"{model_dir}: the chat template does not compile: {error}") from error


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _template_source(model_dir: Path, settings: Mapping[str, Any]) -> str:
    separate = model_dir / "chat_template.jinja"
    if separate.exists():
        return separate.read_text()
    source = settings.get("chat_template")
    if not isinstance(source, str):
        raise ValueError(f"{model_dir} has no chat template: add chat_template to tokenizer_config.json")
    return source


def _token_text(settings: Mapping[str, Any], name: str) -> str:
    value = settings.get(name)
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else ""
