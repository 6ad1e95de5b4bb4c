"""Does the sandbox hold here? Judged by behaviour, in about a second.

Invariants: version strings are never looked at; every check that fails says how to mend it; nothing is left behind.
Left out: escapes from the sandbox, which no self-test can rule out.
"""

from __future__ import annotations

from pathlib import Path

import anyio

from . import images, probe
from .backend import Backend, StartFailed, Want
from .backends import open_backend
from .cgroups import CgroupError
from .checks import GROUPS, LIMITS, PACK, PLATFORM, PROBES, RUNSC, Check, check
from .gvisor import GVisorBackend
from .settings import SandboxSettings
from .trial import Snapshots, Trial


async def doctor(settings: SandboxSettings, profile: str = "python") -> list[Check]:
    """Start one sandbox and try what it must allow and what it must refuse; with gVisor, snapshots as well."""
    try:
        backend = open_backend(settings)
    except StartFailed as error:
        return [_not_started(error, settings)]
    try:
        if isinstance(backend, GVisorBackend):
            return await _judge_runsc(backend, profile)
        return await _judge(backend, profile)
    except StartFailed as error:
        return [_not_started(error, settings)]
    finally:
        await backend.close()


def _judged_in(settings: SandboxSettings) -> tuple[str, Path] | None:
    """The first profile, and its image, in which the self-test's scripts can run; None when there is none."""
    for profile in ("python", *settings.pool):
        try:
            image = images.find_image(settings, profile)
        except StartFailed:
            continue
        if (image / "usr/bin/python3").exists():
            return profile, image
    return None


async def accept(settings: SandboxSettings) -> probe.Verdict | None:
    """The verdict on the configured runsc, kept from an earlier call or made now; StartFailed when it is refused.

    None where no image has what the self-test needs.
    """
    place = await anyio.to_thread.run_sync(_judged_in, settings)
    if place is None:
        return None
    profile, image = place
    home = images.home_of(settings)
    digest = await anyio.to_thread.run_sync(probe.digest_of, images.find_runsc(settings))
    known = probe.verdict(home, digest, settings.platform, image)
    if known is None or not known.accepted:
        checks = await doctor(settings, profile)
        bad = [check for check in checks if not check.ok and not check.optional]
        if bad:
            raise StartFailed("the sandbox's self-test fails: " + "; ".join(render(check) for check in bad))
        good = {check.name for check in checks if check.ok}
        known = probe.Verdict(accepted=True, snapshots="snapshot" in good, leave_running="branch" in good)
        probe.keep_verdict(home, digest, settings.platform, image, known)
    return known


async def _judge(backend: Backend, profile: str) -> list[Check]:
    sandbox = await backend.start(Want(profile=profile, disk_bytes=LIMITS.disk_bytes))
    platform = f", {backend.platform}" if isinstance(backend, GVisorBackend) else ""
    checks = [Check(name="start", ok=True, detail=f"{sandbox.start_s * 1000:.0f} ms{platform}")]
    checks += [await check(sandbox, tried) for tried in PROBES]
    await sandbox.kill()
    checks.append(Check(name="clean-up", ok=backend.leaked == 0, detail=f"{backend.leaked} left", mend=GROUPS))
    return checks


async def _judge_runsc(backend: GVisorBackend, profile: str) -> list[Check]:
    """The sandbox and the snapshots are tried at the same time."""
    able = await anyio.to_thread.run_sync(probe.capabilities, backend.runsc, images.home_of(backend.settings))
    if backend.platform == "auto":
        backend.platform = "ptrace" if "ptrace" in able.platforms else "systrap"
    if able.platforms and backend.platform not in able.platforms:
        said = f"this runsc has no {backend.platform}, only {', '.join(sorted(able.platforms))}"
        return [Check(name="platform", ok=False, detail=said, mend=PLATFORM)]
    image = images.find_image(backend.settings, profile)
    found: list[Check] = []
    tried: list[Snapshots] = []

    async def snapshots() -> None:
        group = backend.tree.group(backend.instance.group_name("trial"))
        path = backend.instance.path / "trial"
        try:
            trial = Trial(able, backend.runsc, backend.platform, image, path, group)
            tried.append(await anyio.to_thread.run_sync(trial.run))
        except (CgroupError, OSError) as error:
            tried.append(Snapshots(detail=str(error)))

    async with anyio.create_task_group() as tasks:  # what it starts is waited for
        tasks.start_soon(snapshots)
        try:
            found += await _judge(backend, profile)
        except StartFailed as error:
            return [_not_started(error, backend.settings)]
    return [*_about(backend.runsc, able), *found, _image_check(backend), *_snapshot_checks(able, tried[0])]


def _about(runsc: str, able: probe.Capabilities) -> list[Check]:
    extras = {
        "uncompressed snapshots": able.uncompressed,
        "background restore": able.background,
        "directfs": able.directfs,
        "overlay in a directory": able.overlay_dir,
    }
    has = ", ".join(name for name, there in extras.items() if there) or "nothing optional"
    return [Check(name="runsc", ok=True, detail=f"{runsc} ({able.digest[:12]}); has {has}")]


def _image_check(backend: GVisorBackend) -> Check:
    said = "one file, read without a helper" if backend.packs else "a directory: each start costs half as much again"
    return Check(name="image", ok=bool(backend.packs), detail=said, mend=PACK, optional=True)


def _snapshot_checks(able: probe.Capabilities, tried: Snapshots) -> list[Check]:
    form = "uncompressed" if able.uncompressed else "compressed, which makes restores slow"
    original = "a sandbox goes on after its snapshot" if tried.leave_running else tried.detail
    return [
        Check(
            name="snapshot", ok=tried.restore, detail=form if tried.restore else tried.detail, mend=RUNSC, optional=True
        ),
        Check(name="branch", ok=tried.leave_running, detail=original, mend=RUNSC, optional=True),
    ]


def _not_started(error: StartFailed, settings: SandboxSettings) -> Check:
    said = str(error)
    named = any(word in said for word in ("infra/setup", "`tiltyard", "needs root"))  # its mend is in it already
    mend = "" if named or settings.backend != "gvisor" else RUNSC if settings.platform == "systrap" else PLATFORM
    return Check(name="start", ok=False, detail=said, mend=mend)


def render(check: Check) -> str:
    """One finding as a line."""
    sign = "ok  " if check.ok else "note" if check.optional else "FAIL"
    mend = f"; mend: {check.mend}" if check.mend and not check.ok else ""
    return f"{sign}  {check.name}: {check.detail}{mend}"


def passed(checks: list[Check]) -> bool:
    """Do sandboxes hold, by these findings?"""
    return all(check.ok or check.optional for check in checks)
