"""A domain ready for use: its definition, and the tasks drawn from its generator.

Invariants: tasks are a pure function of (definition, split, count, seed), the first n of a larger count are the same;
ids are content hashes and unique; a split yields no template of the other when templates are held out.
Left out: choosing between domains is the sampler's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import msgspec

from tiltyard_proto.keys import with_id
from tiltyard_proto.messages import ChatMessage, Task, Verification

from .definition import Definition
from .drafts import Draft, Request, Split

Generator = Callable[[Request], Iterator[Draft]]
_BARREN = 500
"""Draws in a row without a new task after which a source counts as exhausted."""


@dataclass(frozen=True, kw_only=True)
class Domain:
    """One domain."""

    definition: Definition
    source: str
    """Where the definition was found; for error messages."""
    folder: Path

    @property
    def name(self) -> str:
        return self.definition.name

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """The first `count` tasks of a split; fewer when the source holds no more. ValueError: no such split."""
        if split not in self.definition.splits:
            raise ValueError(
                f"domain {self.name} ({self.source}) has no split {split!r}, only {self.definition.splits}"
            )
        found: dict[str, Task] = {}
        barren = 0
        drafts = self.drafts(split, seed)
        while len(found) < count and barren < _BARREN:
            draft = next(drafts, None)
            if draft is None:
                break
            task = self._task(draft, split)
            barren = barren + 1 if task.id in found else 0
            found.setdefault(task.id, task)
        return list(found.values())

    def drafts(self, split: Split, seed: int = 0) -> Iterator[Draft]:
        """The drawn problems of a split, checked against what is held out."""
        request = Request(
            split=split,
            seed=seed,
            held_out=frozenset(self.definition.held_out),
            held_out_sources=frozenset(self.definition.held_out_sources),
            options=self.definition.options,
        )
        for draft in self._generator()(request):
            if not request.wants(draft.template, draft.source):
                raise ValueError(
                    f"domain {self.name}: its generator yielded template {draft.template!r} (source {draft.source!r}) "
                    f"for split {split!r}; ask `request.wants(template, source)` before yielding"
                )
            yield draft

    def _generator(self) -> Generator:
        if self.definition.data:
            return self._read_data
        module, _, function = self.definition.generator.partition(":")
        try:
            loaded = self._beside(module) if module.startswith("./") else import_module(module)
            generator: Generator = getattr(loaded, function)
        except (ImportError, AttributeError, OSError, SyntaxError) as err:
            raise ValueError(
                f"{self.source}: generator {self.definition.generator!r} can't be loaded: {err}; "
                "expected 'module:function' of an installed package, or './file.py:function' beside the definition"
            ) from err
        return generator

    def _beside(self, file: str) -> ModuleType:
        """A Python file in the definition's folder, as a module of its own."""
        path = self.folder / file
        spec = spec_from_file_location(f"tiltyard_domain_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def _read_data(self, request: Request) -> Iterator[Draft]:
        path = self.folder / self.definition.data
        try:
            lines = path.read_bytes().splitlines()
        except OSError as err:
            raise ValueError(f"{self.source}: key `data`: {path} can't be read: {err.strerror}") from err
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                draft = msgspec.json.decode(line, type=Draft)
            except msgspec.DecodeError as err:
                raise ValueError(f"{path} line {number}: {err}") from err
            if request.wants(draft.template, draft.source):
                yield draft

    def _task(self, draft: Draft, split: Split) -> Task:
        d = self.definition
        labels = {"level": d.level, "source": draft.source, **draft.labels}
        return with_id(
            Task(
                id="",
                domain=d.name,
                prompt=draft.messages or self._prompt(draft),
                verification=Verification(
                    kind=d.verifier.kind, data=draft.data, options={**d.verifier.options, **draft.options}
                ),
                environment=d.environment(draft.files, draft.setup),
                sampling=d.sampling_message(),
                limits=d.limits_message(),
                split=split,
                template=draft.template,
                labels={key: value for key, value in labels.items() if value},
                value=d.value,
                reference=draft.reference,
                overrides=d.overrides(),
            )
        )

    def _prompt(self, draft: Draft) -> tuple[ChatMessage, ...]:
        system = self.definition.system
        messages = [ChatMessage(role="system", content=system)] if system else []
        for fields, answer in draft.shots:
            messages.append(ChatMessage(role="user", content=self._user(fields)))
            messages.append(ChatMessage(role="assistant", content=answer))
        return (*messages, ChatMessage(role="user", content=self._user(draft.fields)))

    def _user(self, fields: dict[str, str]) -> str:
        try:
            return self.definition.user.format_map(fields)
        except (KeyError, IndexError, ValueError) as err:
            raise ValueError(f"{self.source}: key `user`: {err!r}; the generator fills {sorted(fields)}") from err
