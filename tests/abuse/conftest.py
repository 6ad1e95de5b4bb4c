"""A real gVisor back-end; around every case a look at the host, a neighbour that must go on, and the account."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from support.abuse import PROBE, Finding, Host, Neighbour, assert_serves, attribution_of, cases_of
from support.sandbox_host import eventually_no_traces

from tiltyard.sandbox.backend import Sandbox, Want
from tiltyard.sandbox.gvisor import GVisorBackend
from tiltyard.sandbox.reaper import become_subreaper
from tiltyard.sandbox.remote import RemoteSandbox
from tiltyard.sandbox.settings import SandboxSettings
from tiltyard_proto.messages import Command, Execution
from tiltyard_proto.outcomes import Outcome

SETTINGS = SandboxSettings()
FINDINGS: dict[str, Finding] = {}
USUAL = (Outcome.FINISHED, Outcome.NONZERO_EXIT)


@pytest.fixture(scope="module")
async def gvisor() -> AsyncIterator[GVisorBackend]:
    """Fails, with the line that mends it, where runsc, the image or root is missing."""
    become_subreaper()
    backend = GVisorBackend.open(SETTINGS)
    yield backend
    await backend.close()
    assert not backend.instance.path.exists()
    assert backend.leaked == 0


@pytest.fixture(scope="module")
async def calm(gvisor: GVisorBackend) -> AsyncIterator[Sandbox]:
    """The neighbour's sandbox."""
    made = await gvisor.start(Want())
    yield made
    await made.kill()


@pytest.fixture
def finding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Finding]:
    """The account of this test: how what it ran ended, apart from the neighbour's answers."""
    found = Finding(cases=cases_of(request.node.name), test=request.node.name)
    whole = RemoteSandbox.run

    async def run(self: RemoteSandbox, command: Command) -> Execution:
        if command == PROBE:
            return await whole(self, command)
        found.running += 1
        try:
            execution = await whole(self, command)
        finally:
            found.running -= 1
        note(found, execution)
        return execution

    monkeypatch.setattr(RemoteSandbox, "run", run)
    FINDINGS[request.node.nodeid] = found
    return found


def note(found: Finding, execution: Execution) -> None:
    """Keep how it ended: the first time, and every time it ended unusually."""
    name = execution.outcome.value
    if name not in found.outcomes and (not found.outcomes or execution.outcome not in USUAL):
        found.outcomes.append(name)
        found.attributions.append(attribution_of(execution))


@pytest.fixture
async def case(gvisor: GVisorBackend, calm: Sandbox, finding: Finding) -> AsyncIterator[Finding]:
    """The host as it was, the neighbour at most half as quick, the service serving: checked when all else is over."""
    neighbour, host = Neighbour(calm), Host(gvisor)
    neighbour.before = await neighbour.rest()
    begun = time.monotonic()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(neighbour.keep_asking, finding)
        yield finding
        finding.seconds = time.monotonic() - begun
        neighbour.over = True
    await host.eventually_clean()
    await assert_serves(gvisor)
    finding.clean = True
    neighbour.after = await neighbour.rest()
    finding.ratio = neighbour.ratio
    neighbour.check()


@pytest.fixture
async def sandbox(gvisor: GVisorBackend, case: Finding) -> AsyncIterator[Sandbox]:
    """One sandbox; afterwards nothing of it may be left."""
    made = await gvisor.start(Want())
    yield made
    await made.kill()
    await eventually_no_traces(gvisor, made.id)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Remember whether the test and the checks after it passed."""
    report: Any = yield
    found = FINDINGS.get(item.nodeid)
    if found is not None:
        found.passed = report.passed and (report.when == "call" or found.passed)
    return report


def pytest_sessionfinish() -> None:
    """Write the account where `make abuse` wants it."""
    target = os.environ.get("ABUSE_ACCOUNT")
    if target:
        Path(target).write_bytes(msgspec.json.encode([each for each in FINDINGS.values() if each.cases]))
