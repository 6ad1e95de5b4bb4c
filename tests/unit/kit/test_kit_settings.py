"""Settings: precedence of file, environment and command line, and what a mistake says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from tiltyard.cli.sections import component_types
from tiltyard.kit.settings import (
    COMPONENTS,
    IN_FILE,
    SHARED,
    BusSettings,
    DataSettings,
    RunSettings,
    ServiceSettings,
    SettingsError,
    Source,
    TaskShare,
    read_source,
    section,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a.toml"


def read(file: Path, text: str, overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> Source:
    file.write_text(text)
    return read_source(file, overrides, environ or {})


def check(source: Source) -> None:
    section(source, "run", RunSettings)
    section(source, "bus", BusSettings)
    section(source, "service", ServiceSettings)


def mistake(file: Path, text: str, overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> str:
    """The one line that a mistake in `[run]`, `[bus]` or `[service]` says."""
    with pytest.raises(SettingsError) as caught:
        check(read(file, text, overrides, environ))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_defaults_without_anything() -> None:
    """No file and no override give the defaults."""
    assert section(read_source(None, (), {}), "run", RunSettings) == RunSettings()


def test_the_command_line_beats_the_environment_beats_the_file(file: Path) -> None:
    """Each source overrides the one before it, key by key."""
    text = "[run]\nsteps = 1\nseed = 1\ngroup_size = 3\n"
    environ = {"TILTYARD_RUN__STEPS": "2", "TILTYARD_RUN__SEED": "2"}
    run = section(read(file, text, ["run.steps=3"], environ), "run", RunSettings)
    assert (run.steps, run.seed, run.group_size) == (3, 2, 3)


def test_the_later_of_two_overrides_counts(file: Path) -> None:
    """The last --set of a key wins."""
    assert section(read(file, "", ["run.steps=3", "run.steps=4"]), "run", RunSettings).steps == 4


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ('run.name="abc"', "abc"),
        ("run.name=abc", "abc"),
        (" run.name = abc ", "abc"),
    ],
)
def test_text_needs_no_quotes(file: Path, override: str, expected: str) -> None:
    """A value that is no TOML is taken as text."""
    assert section(read(file, "", [override]), "run", RunSettings).name == expected


def test_text_of_two_lines_stays_text(file: Path) -> None:
    """A value can't bring a second key with it."""
    assert read(file, "", ["run.model=1\nsteps=7"]).tables == {"run": {"model": "1\nsteps=7"}}


def test_domains_are_quoted_keys(file: Path) -> None:
    """A domain's dots stand inside quotes, on the command line as in the file."""
    domain = '"code.python.functions"'
    text = f"[run.train]\n{domain} = {{ tasks = 5 }}\n"
    assert section(read(file, text), "run", RunSettings).train == {"code.python.functions": TaskShare(tasks=5)}
    for override in (f"run.train.{domain}={{tasks=3}}", f"run.train.{domain}.tasks=3"):
        source = read(file, text, [override])
        assert section(source, "run", RunSettings).train == {"code.python.functions": TaskShare(tasks=3)}


def test_lists_and_tables_are_toml(file: Path) -> None:
    """Structured values on the command line are read as TOML."""
    source = read(file, "", ['bus.servers=["nats://a:1", "nats://b:2"]', "bus.embedded=false"])
    assert section(source, "bus", BusSettings) == BusSettings(servers=("nats://a:1", "nats://b:2"), embedded=False)


def test_a_byte_order_mark_is_no_mistake(file: Path) -> None:
    """Editors write one in front of the first table."""
    assert section(read(file, "\ufeff[run]\nsteps=4\n"), "run", RunSettings).steps == 4


@pytest.mark.parametrize(
    ("text", "overrides", "environ", "words"),
    [
        ("[rum]\nsteps=1", (), {}, ("a.toml", "[rum]", "unknown table", "run, bus")),
        ("run=1", (), {}, ("a.toml", "run", "expected a table")),
        ("[run]\nstepz=1", (), {}, ("a.toml", "[run]", "`stepz`", "known keys", "steps")),
        ("[run]\nsteps='1'", (), {}, ("a.toml", "[run] steps", "Expected `int`, got `str`")),
        ("[run]\nsteps=1.5", (), {}, ("a.toml", "[run] steps", "Expected `int`, got `float`")),
        ("[run]\nsteps=-1", (), {}, ("a.toml", "[run] steps", "Expected `int` >= 0")),
        ("[run]\nrefill_cap=0.5", (), {}, ("a.toml", "refill_cap: expected at least 1")),
        ("[run]\ngroup_size=1", (), {}, ("group_size: a baseline needs at least 2",)),
        ("[run]\nname='A-b'", (), {}, ("a.toml", "run 'A-b'", "lower-case letter")),
        ("[run.train]\nCode={}", (), {}, ("a.toml", "train: domain 'Code'", "dotted lower-case")),
        ("[run.train.code]\ntaskz=1", (), {}, ("a.toml", "[run] train", "`taskz`")),
        ("[bus]\nservers=[1]", (), {}, ("a.toml", "[bus] servers[0]", "Expected `str`, got `int`")),
        ("[bus]\nservers=[]", (), {}, ("a.toml", "[bus] servers", "length >= 1")),
        ("", ('bus.servers=["foo"]',), {}, ("--set bus.servers", "[bus]: servers: expected nats://HOST:PORT", "'foo'")),
        ("", ('bus.servers=["nats://a:99999"]',), {}, ("--set bus.servers", "[bus]: servers: expected", "99999")),
        ("", ("run.refill_cap=nan",), {}, ("--set run.refill_cap", "[run] refill_cap", "Expected `float` > 0")),
        ("", ("run.group_deadline_s=inf",), {}, ("--set run.group_deadline_s", "[run] group_deadline_s", "<= ")),
        ("", ("run.group_deadline_s=0",), {}, ("--set run.group_deadline_s", "Expected `float` > 0")),
        ("", ("run.max_wall_s=-1",), {}, ("--set run.max_wall_s", "Expected `float` >= 0")),
        ("", ("run.evaluate.code.samples=0",), {}, ("--set run.evaluate", "samples", "Expected `int` >= 1")),
        ("", ("run.train.code.tasks=-3",), {}, ("--set run.train", "tasks", "Expected `int` >= 1")),
        ("", ("run.train.code.temperature=nan",), {}, ("--set run.train", "temperature", "Expected `float` >= 0")),
        ("", ("service.log_level=loud",), {}, ("--set service.log_level", "Invalid enum value 'loud'")),
        ("", ("service.metrics_port=70000",), {}, ("--set service.metrics_port", "<= 65535")),
        ("", ('run.name="Bad"',), {}, ("--set run.name", "[run]: name: run 'Bad'")),
        ("", ("nope.x=1",), {}, ("--set nope.x=1", "[nope]: unknown table")),
        ("", (f"run.name={'[' * 3000}",), {}, ("--set run.name", "expected a lower-case letter")),
        (f"x = {'[' * 5000}", (), {}, ("a.toml", "nested too deeply")),
        ("#" * (5 << 20), (), {}, ("a.toml", "more than 4 MiB")),
        ("steps = ", (), {}, ("a.toml", "not valid TOML", "Invalid value")),
        ("", ("run.steps=x",), {}, ("--set run.steps=x", "[run] steps", "Expected `int`")),
        ("", ("run.stepz=1",), {}, ("--set run.stepz=1", "`stepz`", "known keys")),
        ("", ("run.train.Code={}",), {}, ("--set run.train.Code={}", "dotted lower-case")),
        ("", ("run.steps",), {}, ("--set run.steps", "expected table.key=value")),
        ("", ("steps=1",), {}, ("--set steps=1", "expected table.key=value, got 'steps'")),
        ("", ("=1",), {}, ("--set =1", "expected table.key=value")),
        ("", ("run..steps=1",), {}, ("--set run..steps=1", "expected table.key=value")),
        ("[run]\nsteps=1", ("run.steps.x=1",), {}, ("--set run.steps.x=1", "run.steps is a value, not a table")),
        ("run=1", ("run.steps=1",), {}, ("--set run.steps=1", "run is a value, not a table")),
        ("", (), {"TILTYARD_RUN__STEPS": "x"}, ("environment variable TILTYARD_RUN__STEPS", "Expected `int`")),
        ("", (), {"TILTYARD_RUN__STEPZ": "1"}, ("environment variable TILTYARD_RUN__STEPZ", "`stepz`")),
        ("", (), {"TILTYARD_STEPS": "1"}, ("environment variable TILTYARD_STEPS", "expected table.key=value")),
    ],
)
def test_a_mistake_names_source_key_and_expectation(
    file: Path, text: str, overrides: Sequence[str], environ: Mapping[str, str], words: Sequence[str]
) -> None:
    """The message says where the value came from, which key it is, and what was expected."""
    said = mistake(file, text, overrides, environ)
    assert all(word in said for word in words), said


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    """A file that is not there is named."""
    with pytest.raises(SettingsError, match=r"nothing\.toml: No such file"):
        read_source(tmp_path / "nothing.toml", (), {})


def test_other_variables_are_left_alone() -> None:
    """Variables of the set-up and of others are no settings."""
    environ = {"TILTYARD_HOME": "/h", "TILTYARD_VENV": "/v", "TILTYARD_TORCH": "cpu", "OTHER_RUN__STEPS": "x"}
    assert read_source(None, (), environ).tables == {}


@pytest.mark.parametrize("secret", ["abc\n", "0123", 'with "quotes"', "[1, 2]", "1 = 2"])
def test_a_secret_may_lie_in_a_file(tmp_path: Path, secret: str) -> None:
    """A variable that ends in _FILE names a file whose content, without the line's end, is the value as text."""
    (tmp_path / "key").write_text(secret)
    source = read_source(None, (), {"TILTYARD_ENGINE__API_KEY_FILE": str(tmp_path / "key")})
    assert source.tables == {"engine": {"api_key": secret.strip()}}


def test_a_secret_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A file that can't be read is a mistake that names the variable and the file, and a misspelt key is still one."""
    with pytest.raises(SettingsError, match=r"variable TILTYARD_BUS__CREDENTIALS_FILE: /nothing: No such file"):
        read_source(None, (), {"TILTYARD_BUS__CREDENTIALS_FILE": "/nothing"})
    (tmp_path / "key").write_bytes(b"\xff")
    with pytest.raises(SettingsError, match="not text"):
        read_source(None, (), {"TILTYARD_BUS__CREDENTIALS_FILE": str(tmp_path / "key")})
    (tmp_path / "key").write_text("x")
    with pytest.raises(SettingsError, match=r"TILTYARD_BUS__KEY_FILE.*unknown"):
        section(read_source(None, (), {"TILTYARD_BUS__KEY_FILE": str(tmp_path / "key")}), "bus", BusSettings)


def test_no_setting_is_taken_for_a_file() -> None:
    """No key of any table ends like a variable that names a file."""
    for kind in component_types().values():
        assert not [name for name in kind.__struct_fields__ if name.endswith(IN_FILE)]


def test_paths_of_a_run_lie_below_the_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Runs and blobs lie below the data root, the cache where setting, environment or home say."""
    data = DataSettings(root=str(tmp_path))
    assert data.run_path("a") == tmp_path / "runs/a"
    assert data.blob_path == tmp_path / "blobs"
    monkeypatch.setenv("TILTYARD_HOME", "/home-of-models")
    assert data.cache_path == Path("/home-of-models")
    assert DataSettings(cache="/mine").cache_path == Path("/mine")
    monkeypatch.delenv("TILTYARD_HOME")
    monkeypatch.setenv("HOME", "/h")
    assert data.cache_path == Path("/h/.cache/tiltyard")


@pytest.mark.parametrize("kind", SHARED.values(), ids=lambda kind: str(kind.__name__))
def test_settings_refuse_what_they_do_not_know(kind: type[msgspec.Struct]) -> None:
    """Every shared table is closed, and a component's name is never that of a shared table."""
    assert kind.__struct_config__.forbid_unknown_fields
    assert not set(COMPONENTS) & set(SHARED)


def test_an_empty_secret_is_none(tmp_path: Path) -> None:
    """A file without a secret would leave an engine open to all, so it is refused by name."""
    (tmp_path / "key").write_text("\n")
    with pytest.raises(SettingsError, match=r"TILTYARD_ENGINE__API_KEY_FILE: .*/key: nothing is in it"):
        read_source(None, (), {"TILTYARD_ENGINE__API_KEY_FILE": str(tmp_path / "key")})
