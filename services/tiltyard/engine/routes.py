"""SGLang's HTTP routes over an `Engine`: bodies in, status codes and shapes out. No decisions of its own."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tiltyard.engine.app import Engine
from tiltyard.engine.handler import Refused

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
OPEN = frozenset({"/health", "/health_generate", "/ready", "/metrics"})
CONTROL = frozenset(
    {
        *("/update_weights_from_disk", "/update_weight_version", "/pause_generation", "/continue_generation"),
        *("/abort_request", "/flush_cache"),
    }
)
VERSION = "0.5.23-tiltyard"


def build_app(engine: Engine) -> web.Application:
    """The aiohttp application; run it with `handler_cancellation`, so that a lost client ends its request."""
    routes = Routes(engine)
    app = web.Application(middlewares=[routes.authorize, routes.shape_errors], client_max_size=64 * 2**20)
    app.add_routes(
        [
            web.post("/generate", routes.generate),
            web.put("/generate", routes.generate),
            web.post("/update_weights_from_disk", routes.update_weights),
            web.post("/update_weight_version", routes.update_version),
            web.post("/pause_generation", routes.pause),
            web.post("/continue_generation", routes.resume),
            web.post("/abort_request", routes.abort),
            web.route("*", "/flush_cache", routes.flush),
            web.get("/health", routes.health),
            web.get("/health_generate", routes.health),
            web.get("/ready", routes.ready),
            web.get("/model_info", routes.model_info),
            web.get("/get_model_info", routes.model_info),
            web.get("/server_info", routes.server_info),
            web.get("/get_server_info", routes.server_info),
            web.get("/v1/loads", routes.loads),
            web.get("/v1/models", routes.models),
            web.get("/metrics", routes.metrics),
        ]
    )
    return app


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


async def _body(request: web.Request) -> dict[str, Any]:
    """The JSON object in the request; an absent body counts as {}."""
    raw = await request.read()
    try:
        value = msgspec.json.decode(raw) if raw else {}
    except msgspec.DecodeError as error:
        raise _bad_request(f"Invalid JSON: {error}") from error
    if not isinstance(value, dict):
        raise _bad_request("The body must be a JSON object.")
    return value


def _bad_request(message: str) -> Refused:
    body = {"object": "error", "message": message, "type": "Bad Request", "param": None, "code": 400}
    return Refused(message, body=body)


def _field(body: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    value = body.get(name, default)
    if value is not None and not isinstance(value, kind):
        raise _bad_request(f"{name}: expected {kind.__name__}, got {type(value).__name__}")
    return default if value is None else value


class Routes:
    """The handlers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @web.middleware
    async def authorize(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Bearer tokens: control routes take the admin key where one is set, the others the api key."""
        settings = self._engine.settings
        control = request.path in CONTROL
        key = (settings.admin_api_key or settings.api_key) if control else settings.api_key
        if key and request.path not in OPEN and request.headers.get("Authorization") != f"Bearer {key}":
            return _json({"error": "Unauthorized"}, 401)
        return await handler(request)

    @web.middleware
    async def shape_errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turns a refusal into its reply."""
        try:
            return await handler(request)
        except Refused as refused:
            return _json(refused.body, refused.status)

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """One or several generations, at once or as server-sent events with everything so far in each."""
        body = await _body(request)
        if body.get("stream"):
            return await self._stream(request, body)
        parsed = self._engine.parse(body)
        replies = await self._engine.generate(parsed)
        return _json(replies[0] if parsed.single else replies)

    async def _stream(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(request)

        async def send(value: Any) -> None:
            await response.write(b"data: " + msgspec.json.encode(value) + b"\n\n")

        try:
            parsed = self._engine.parse(body)
        except Refused as refused:
            error = {
                "message": str(refused),
                "type": "invalid_request_error",
                "code": refused.status,
                "retryable": False,
            }
            await send({"error": error})
        else:
            left = len(parsed.generations)
            async with self._engine.updates(parsed) as results:
                while left:
                    index, reply, final = await results.get()
                    left -= final
                    await send(reply if parsed.single else reply | {"index": index})
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def update_weights(self, request: web.Request) -> web.Response:
        """New weights from a directory."""
        body = await _body(request)
        path = _field(body, "model_path", str, "")
        if not path:
            raise _bad_request("model_path: required")
        version = body.get("weight_version")
        success, message = await self._engine.update(
            path,
            None if version is None else str(version),
            flush=_field(body, "flush_cache", bool, True),
            abort=_field(body, "abort_all_requests", bool, False),
        )
        return _json({"success": success, "message": message, "num_paused_requests": 0}, 200 if success else 400)

    async def update_version(self, request: web.Request) -> web.Response:
        """Another name for the weights being served; aborts everything unless told not to."""
        body = await _body(request)
        version = _field(body, "new_version", str, "")
        if not version:
            raise _bad_request("new_version: required")
        await self._engine.rename_version(version, abort=_field(body, "abort_all_requests", bool, True))
        return _json({"success": True, "message": f"Weight version updated to {version}", "new_version": version})

    async def pause(self, request: web.Request) -> web.Response:
        """Stops; see the scheduler for the modes."""
        mode = _field(await _body(request), "mode", str, "abort")
        await self._engine.pause(mode)
        return _json({"message": f"Generation paused ({mode}).", "status": "ok"})

    async def resume(self, request: web.Request) -> web.Response:
        """Goes on."""
        await self._engine.resume()
        return _json({"message": "Generation continued.", "status": "ok"})

    async def abort(self, request: web.Request) -> web.Response:
        """Always 200 with an empty body."""
        body = await _body(request)
        await self._engine.abort(_field(body, "rid", str, ""), everything=_field(body, "abort_all", bool, False))
        return web.Response()

    async def flush(self, request: web.Request) -> web.Response:
        """Plain text."""
        if await self._engine.flush():
            return web.Response(text="Cache flushed.\n")
        return web.Response(text="Flush cache failed.\n", status=400)

    async def health(self, request: web.Request) -> web.Response:
        """200 when the scheduler answers, 503 when it does not in time (so too while paused)."""
        return web.Response(status=200 if await self._engine.healthy() else 503)

    async def ready(self, request: web.Request) -> web.Response:
        """200 when new requests would be computed now, 503 at once otherwise."""
        return web.Response(status=503 if self._engine.gate.paused or self._engine.scheduler.died else 200)

    async def model_info(self, request: web.Request) -> web.Response:
        """Which weights are served."""
        engine = self._engine
        return _json(
            {
                "model_path": engine.model_path,
                "served_model_name": engine.served_name,
                "tokenizer_path": engine.tokenizer_path,
                "is_generation": True,
                "weight_version": engine.weight_version,
                "load_format": "auto",
                "model_type": "llama",
                "architectures": ["LlamaForCausalLM"],
            }
        )

    async def server_info(self, request: web.Request) -> web.Response:
        """All settings but the keys, and limits."""
        engine = self._engine
        settings = msgspec.to_builtins(engine.settings) | {"api_key": None, "admin_api_key": None}
        return _json(
            settings
            | {
                "model_path": engine.model_path,
                "weight_version": engine.weight_version,
                "max_total_num_tokens": engine.settings.max_total_tokens,
                "max_req_input_len": engine.limits.context_length - 1,
                "context_length": engine.limits.context_length,
                "startup_time": engine.started,
                "internal_states": [self._load()],
                "version": VERSION,
                "frontend": "http",
            }
        )

    async def loads(self, request: web.Request) -> web.Response:
        """The scheduler's last snapshot; answers even when the scheduler does not."""
        load = self._load()
        return _json({"timestamp": time.time(), "version": VERSION, "dp_rank_count": 1, "loads": [load]})

    async def models(self, request: web.Request) -> web.Response:
        """The one model, under the name that updates change."""
        engine = self._engine
        entry = {
            "id": engine.served_name,
            "object": "model",
            "created": int(engine.started),
            "owned_by": "sglang",
            "root": engine.served_name,
            "max_model_len": engine.limits.context_length,
        }
        return _json({"object": "list", "data": [entry]})

    async def metrics(self, request: web.Request) -> web.Response:
        """Prometheus text."""
        body = generate_latest(self._engine.metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _load(self) -> dict[str, Any]:
        settings, load = self._engine.settings, self._engine.scheduler.load
        return {
            "dp_rank": 0,
            "num_running_reqs": load.running,
            "num_waiting_reqs": load.waiting,
            "num_used_tokens": load.running_tokens,
            "num_total_tokens": load.running_tokens,
            "max_total_num_tokens": settings.max_total_tokens,
            "max_running_requests": settings.max_running_requests,
            "token_usage": load.running_tokens / settings.max_total_tokens,
            "utilization": load.running / settings.max_running_requests,
            "gen_throughput": load.tokens_per_s,
        }
