"""structlog, set up once per process: one line per event, console for people and JSON for machines.

A line that is written while a message is handled says whose it is: run, rollout, stage and trace.
"""

from __future__ import annotations

import logging
import sys

import structlog

from .tracing import add_context


def keep_off_stdout() -> None:
    """For a command whose standard output is its answer: events go to whatever standard error is at the time."""
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


def setup(service: str, form: str = "auto", level: str = "info") -> None:
    """Configure structlog to standard error; `form` is 'console', 'json' or 'auto'."""
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if console else structlog.processors.JSONRenderer()
    )
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        add_context,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if not console:
        processors.append(structlog.processors.dict_tracebacks)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)
