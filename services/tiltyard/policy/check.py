"""Is a model directory whole? Answered from headers and small files, without loading weights or torch."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open

from tiltyard.policy.chat import ChatRenderer


def check_directory(path: Path) -> None:
    """ValueError unless it holds whole weights, and a tokenizer and chat template that can render a prompt."""
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{path} holds no weights: expected model.safetensors")
    for file in files:
        try:
            with safe_open(str(file), framework="np") as opened:
                opened.keys()
        except SafetensorError as error:
            raise ValueError(f"{file} is damaged: {error}") from error
    ChatRenderer(path).render([("user", "1 + 1?")])
