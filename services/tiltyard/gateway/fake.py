"""A fake engine: a real HTTP server with SGLang's routes and no model, for tests of the gateway and its users.

Tokens follow from the input alone (`next_token`), so a resumed request continues as an undisturbed one would.
It copies the habits of SGLang 0.5.23 that matter to a gateway: four error shapes, refused flushes under running
requests, three pause modes, aborts by prefix, a model path that an update renames, version spans over a switch.
`script` holds canned replies that are served, first come first, before the fake answers by itself.
Invariants: a request that is cut short keeps what it had; ids outside the vocabulary set `crashed`, as they would
kill a real engine. Left out: streaming, batches, real sampling parameters.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

STOP_TOKEN = 2


def next_token(ids: Sequence[int], vocab_size: int) -> int:
    """The token after `ids`: a fixed function of the last id and the length, never a special token."""
    return 3 + (ids[-1] * 7 + len(ids) * 3) % (vocab_size - 3)


@dataclass(kw_only=True)
class Canned:
    """A scripted reply of `/generate`."""

    status: int = 200
    body: Any = None
    """Sent as JSON; bytes are sent as they are."""
    drop: bool = False
    """Close the connection instead of answering."""


@dataclass(kw_only=True, eq=False)
class _Running:
    rid: str
    ids: list[int]
    versions: list[str] = field(default_factory=list)
    cut: str = ""
    held: bool = False
    """It arrived during a pause: an abort is acknowledged and lost."""


@dataclass(kw_only=True)
class FakeEngine:
    """See the module. `step_s` is the time of one token."""

    vocab_size: int = 256
    context_length: int = 512
    version: str = "default"
    model_path: str = "/models/base"
    step_s: float = 0.0
    stop_after: int = 0
    """The stop token is sampled as this many-th token; 0: never."""
    known_paths: set[str] | None = None
    """Paths an update finds; None: every path."""
    update_flushes: bool = False
    """Flush during the update whatever was asked for, and complain when requests hold the cache."""
    flush_refusals: int = 0
    continue_s: float = 0.0
    """Time that continuing takes; a caller that leaves meanwhile leaves the engine paused."""
    script: deque[Canned] = field(default_factory=deque)
    requests: list[dict[str, Any]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    """Control calls in order, as 'path detail'."""
    paused: str = ""
    crashed: bool = False
    url: str = ""

    def __post_init__(self) -> None:
        self.live_version = self.version
        self.running: dict[str, _Running] = {}
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    # ------------------------------------------------------------ life

    async def start(self, port: int = 0) -> str:
        """Listen on loopback; the URL."""
        app = web.Application(client_max_size=64 * 2**20)
        app.add_routes(
            [
                web.post("/generate", self._generate),
                web.post("/abort_request", self._abort),
                web.get("/model_info", self._info),
                web.get("/ready", self._ready),
                web.post("/pause_generation", self._pause),
                web.post("/continue_generation", self._continue),
                web.post("/update_weights_from_disk", self._update),
                web.post("/update_weight_version", self._set_version),
                web.post("/flush_cache", self._flush),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self.url

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    # ------------------------------------------------------------ generate

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = msgspec.json.decode(await request.read())
        self.requests.append(body)
        if self.script:
            return await self._canned(request, self.script.popleft())
        refusal = self._refusal(body)
        if refusal:
            return _json({"error": {"message": refusal}}, 400)
        running = _Running(rid=body["rid"], ids=[], held=bool(self.paused))
        self.running[running.rid] = running
        try:
            finish = await self._run(running, body)
        finally:
            del self.running[running.rid]
            await self._wake()
        return _json(self._reply(running, finish, body))

    async def _canned(self, request: web.Request, canned: Canned) -> web.StreamResponse:
        if canned.drop:
            assert request.transport is not None
            request.transport.abort()
        if isinstance(canned.body, bytes):
            return web.Response(body=canned.body, status=canned.status)
        return _json(canned.body, canned.status)

    def _refusal(self, body: dict[str, Any]) -> str:
        ids, params = body.get("input_ids") or [], body["sampling_params"]
        if any(not 0 <= token < self.vocab_size for token in ids):
            self.crashed = True
        if not ids:
            return "input_ids is empty."
        if len(ids) + params["max_new_tokens"] > self.context_length:
            return f"Requested token count exceeds the model's maximum context length of {self.context_length} tokens."
        if body["rid"] in self.running:
            return f"Duplicate request ID detected: {body['rid']}"
        return ""

    async def _run(self, running: _Running, body: dict[str, Any]) -> dict[str, Any]:
        budget = body["sampling_params"]["max_new_tokens"]
        stops = body["sampling_params"].get("stop_token_ids", [])
        while len(running.ids) < budget:
            await asyncio.sleep(self.step_s)
            async with self._changed:
                await self._changed.wait_for(lambda: not self.paused or running.cut)
            running.held = False
            if running.cut:
                return {"type": "abort", "message": running.cut}
            at_stop = len(running.ids) + 1 == self.stop_after
            token = STOP_TOKEN if at_stop else next_token([*body["input_ids"], *running.ids], self.vocab_size)
            running.ids.append(token)
            running.versions.append(self.live_version)
            if token in stops:
                return {"type": "stop", "matched": token}
        return {"type": "length", "length": budget}

    def _reply(self, running: _Running, finish: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        spans: list[dict[str, Any]] = []
        for index, version in enumerate(running.versions):
            if spans and spans[-1]["version"] == version:
                spans[-1]["end"] = index + 1
            else:
                spans.append({"version": version, "start": index, "end": index + 1})
        meta: dict[str, Any] = {
            "id": running.rid,
            "finish_reason": finish,
            "prompt_tokens": len(body["input_ids"]),
            "completion_tokens": len(running.ids),
            "weight_version": self.live_version,
            "weight_versions": spans,
        }
        if body.get("return_logprob"):
            meta["output_token_logprobs"] = [[-0.5 - 0.001 * (token % 7), token, None] for token in running.ids]
        return {"text": "", "output_ids": running.ids, "meta_info": meta}

    # ------------------------------------------------------------ control

    async def _abort(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read())
        self.calls.append("abort_all" if body.get("abort_all") else "abort")
        await self._cut("" if body.get("abort_all") else body["rid"])
        return web.Response()

    async def _cut(self, prefix: str) -> None:
        for running in self.running.values():
            if running.rid.startswith(prefix) and not running.held:
                running.cut = "Aborted"
        await self._wake()

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _info(self, _: web.Request) -> web.Response:
        return _json({"model_path": self.model_path, "served_model_name": "any", "weight_version": self.version})

    async def _ready(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self.paused else 200)

    async def _pause(self, request: web.Request) -> web.Response:
        mode = msgspec.json.decode(await request.read())["mode"]
        if mode not in ("abort", "in_place", "retract"):
            return _json({"error": {"message": f"bad mode {mode}"}}, 400)
        self.calls.append(f"pause {mode}")
        if mode == "abort":
            await self._cut("")
            async with self._changed:
                await self._changed.wait_for(lambda: all(running.held for running in self.running.values()))
        self.paused = mode
        return _json({"message": "Generation paused.", "status": "ok"})

    async def _continue(self, _: web.Request) -> web.Response:
        await asyncio.sleep(self.continue_s)
        self.calls.append("continue")
        self.paused = ""
        await self._wake()
        return _json({"message": "Generation continued.", "status": "ok"})

    async def _update(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read())
        path = body["model_path"]
        asked = [name for name in ("flush_cache", "abort_all_requests") if body.get(name, name == "flush_cache")]
        self.calls.append(" ".join(["update", str(body.get("weight_version")), *asked]))
        if self.known_paths is not None and path not in self.known_paths:
            return _json({"success": False, "message": f"{path} does not exist"}, 400)
        self.live_version = body["weight_version"]
        if (self.update_flushes or body.get("flush_cache", True)) and not self._can_flush():
            message = "Weights were updated, but the cache was not flushed"
            return _json({"success": False, "message": message}, 400)
        self.version, self.model_path = body["weight_version"], path
        return _json({"success": True, "message": "Succeeded to update model weights."})

    async def _set_version(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read())
        abort = body.get("abort_all_requests", True)
        self.calls.append(f"set_version {body['new_version']}{' abort_all_requests' if abort else ''}")
        self.version = body["new_version"]
        if abort:
            await self._cut("")
        return _json({"success": True, "message": ""})

    def _can_flush(self) -> bool:
        if self.flush_refusals > 0:
            self.flush_refusals -= 1
            return False
        return not self.running or self.paused == "retract"

    async def _flush(self, _: web.Request) -> web.Response:
        flushed = self._can_flush()
        self.calls.append("flush" if flushed else "flush refused")
        text = "Cache flushed." if flushed else "Flush cache failed."
        return web.Response(text=text, status=200 if flushed else 400)


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")
