"""The engine as the gateway sees it: one small protocol, spoken over SGLang's native HTTP API.

Invariants: every call has a deadline and ends in its result or an `EngineError`; a generate call that is given up
(deadline, cancellation) is aborted at the engine. The embedded engine, a real SGLang server and `fake.FakeEngine`
pass the same contract suite. Engines are known by their URL, never by their model name, which a weight update changes.
Left out: streaming, tensor and distributed weight updates, an OpenAI-compatible front end.
"""

from __future__ import annotations

from typing import Any, Protocol

import aiohttp
import msgspec

from .settings import GatewaySettings, PauseMode
from .wire import EngineBusy, EngineFault, Sample, error_text, parse_generate, read_body


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine says it serves."""

    version: str
    model_path: str


class UpdateRefused(EngineFault):
    """New weights were not loaded; the old ones are still there."""


class EngineClient(Protocol):
    """One engine."""

    url: str

    async def generate(self, body: dict[str, Any], fallback_version: int, timeout_s: float) -> Sample: ...

    async def abort(self, rid: str) -> None: ...

    async def info(self) -> EngineInfo: ...

    async def ready(self) -> bool:
        """False while it is paused or starting."""
        ...

    async def pause(self, mode: PauseMode) -> None: ...

    async def resume(self) -> None: ...

    async def update_weights(self, path: str, version: str) -> bool:
        """Load weights without flushing; False when they are live but the engine says it could not flush."""
        ...

    async def set_version(self, version: str) -> None:
        """Name the weights that are live, leaving running requests alone."""
        ...

    async def flush(self) -> bool:
        """Empty the prefix cache; False when requests hold it."""
        ...

    async def abort_all(self) -> None: ...


class HttpEngine:
    """`EngineClient` over aiohttp. The session belongs to the caller."""

    def __init__(self, url: str, session: aiohttp.ClientSession, settings: GatewaySettings) -> None:
        self.url = url.rstrip("/")
        self._session = session
        self._settings = settings
        self._headers = _bearer(settings.api_key)
        self._admin = _bearer(settings.admin_key or settings.api_key)

    async def _call(
        self, method: str, path: str, body: dict[str, Any] | None, timeout_s: float, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        data = None if body is None else msgspec.json.encode(body)
        if data is not None:
            headers = {**headers, "Content-Type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(timeout_s, self._settings.control_s))
        try:
            async with self._session.request(
                method, self.url + path, data=data, headers=headers, timeout=timeout
            ) as reply:
                return reply.status, await reply.read()
        except TimeoutError as error:
            raise EngineFault(f"{path}: no answer within {timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise EngineFault(f"{path}: {type(error).__name__}: {error}") from error

    async def _control(self, path: str, body: dict[str, Any] | None, timeout_s: float) -> tuple[int, Any]:
        """Routes that change something take the admin key alone, those that only tell take the api key alone."""
        method, key = ("GET", self._headers) if body is None else ("POST", self._admin)
        status, raw = await self._call(method, path, body, timeout_s, key)
        return status, read_body(raw)

    async def _expect(self, path: str, body: dict[str, Any] | None, timeout_s: float) -> Any:
        status, answer = await self._control(path, body, timeout_s)
        if status != 200:
            raise EngineFault(f"{path}: {status}: {error_text(answer) or answer}")
        return answer

    async def generate(self, body: dict[str, Any], fallback_version: int, timeout_s: float) -> Sample:
        status, raw = await self._call("POST", "/generate", body, timeout_s, self._headers)
        return parse_generate(status, raw, fallback_version)

    async def abort(self, rid: str) -> None:
        if not rid:
            raise ValueError("abort: an empty rid is a prefix of every request")
        await self._expect("/abort_request", {"rid": rid}, self._settings.control_s)

    async def abort_all(self) -> None:
        await self._expect("/abort_request", {"rid": "", "abort_all": True}, self._settings.control_s)

    async def info(self) -> EngineInfo:
        answer = await self._expect("/model_info", None, self._settings.control_s)
        if not isinstance(answer, dict) or "model_path" not in answer:
            raise EngineFault(f"/model_info: {str(answer)[:200]}")
        return EngineInfo(version=str(answer.get("weight_version", "")), model_path=str(answer["model_path"]))

    async def ready(self) -> bool:
        status, _ = await self._control("/ready", None, self._settings.control_s)
        if status not in (200, 404, 503):
            raise EngineFault(f"/ready: {status}")
        return status != 503  # an engine without the route counts as ready

    async def pause(self, mode: PauseMode) -> None:
        await self._expect("/pause_generation", {"mode": mode}, self._settings.pause_s)

    async def resume(self) -> None:
        await self._expect("/continue_generation", {}, self._settings.control_s)

    async def update_weights(self, path: str, version: str) -> bool:
        body = {"model_path": path, "weight_version": version, "flush_cache": False, "abort_all_requests": False}
        status, answer = await self._control("/update_weights_from_disk", body, self._settings.update_s)
        text = error_text(answer)
        if status == 200 and text is None:
            return True
        if text and "were updated" in text and "not flushed" in text:
            return False
        if status == 503:
            raise EngineBusy(f"/update_weights_from_disk: {text}")
        raise UpdateRefused(f"/update_weights_from_disk {path}: {status}: {text or answer}")

    async def set_version(self, version: str) -> None:
        body = {"new_version": version, "abort_all_requests": False}
        await self._expect("/update_weight_version", body, self._settings.control_s)

    async def flush(self) -> bool:
        status, answer = await self._control("/flush_cache", {}, self._settings.control_s)
        if status in (200, 400):
            return status == 200
        raise EngineFault(f"/flush_cache: {status}: {error_text(answer) or answer}")


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}
