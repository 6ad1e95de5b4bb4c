"""Configuration files: INI, JSON, TOML, YAML, nginx; compared by what they mean."""

from __future__ import annotations

import json
import random

from .work import NAMES, WORDS, Templates, Work, file, lines


def _ini_text(sections: dict[str, dict[str, str]]) -> str:
    return "\n".join(
        lines([f"[{name}]", *(f"{k} = {v}" for k, v in pairs.items())]) for name, pairs in sections.items()
    )


def _sections(rng: random.Random) -> dict[str, dict[str, str]]:
    return {name: {key: str(rng.randint(1, 99)) for key in rng.sample(WORDS, 3)} for name in rng.sample(NAMES, 3)}


def _ini(rng: random.Random) -> Work:
    before = _sections(rng)
    section = rng.choice(sorted(before))
    key, value = rng.choice(sorted(before[section])), str(rng.randint(100, 999))
    after = {name: {**pairs, **({key: value} if name == section else {})} for name, pairs in before.items()}
    return Work(f"in app.ini set {key} of the section {section} to {value} and leave everything else",
                [file("app.ini", _ini_text(after), "ini")],
                f"sed -i '/^\\[{section}\\]/,/^\\[/ s/^{key} = .*/{key} = {value}/' app.ini", {"app.ini": _ini_text(before)})  # fmt: skip


def _json_key(rng: random.Random) -> Work:
    a, b, c = rng.sample(WORDS, 3)
    before = {a: {b: rng.randint(1, 9), "on": False}, c: rng.sample(NAMES, 3), "version": rng.randint(1, 5)}
    after = {**before, a: {b: before[a][b], "on": True}}  # type: ignore[index]
    return Work(f"in settings.json set 'on' under '{a}' to true and leave everything else", [file("settings.json", json.dumps(after), "json")],
                f"jq '.{a}.on = true' settings.json > /tmp/s && cp /tmp/s settings.json", {"settings.json": json.dumps(before, indent=2)})  # fmt: skip


def _remove(rng: random.Random) -> Work:
    before = _sections(rng)
    section = rng.choice(sorted(before))
    after = {name: pairs for name, pairs in before.items() if name != section}
    return Work(f"remove the whole section {section} from app.ini and leave everything else", [file("app.ini", _ini_text(after), "ini")],
                f"awk '/^\\[/ {{ keep = $0 != \"[{section}]\" }} keep' app.ini > /tmp/a && cp /tmp/a app.ini", {"app.ini": _ini_text(before)})  # fmt: skip


def _nginx(rng: random.Random) -> Work:
    port, root, name = rng.randint(8000, 8999), f"/srv/{rng.choice(WORDS)}", f"{rng.choice(NAMES)}.example.org"
    text = f"server {{\n    listen {port};\n    server_name {name};\n    root {root};\n    index index.html;\n}}\n"
    return Work(f"write site.conf, an nginx configuration with one server block that listens on port {port}, has the server name {name}, the root {root} and index.html as its index, and nothing more",
                [file("site.conf", text, "nginx")], f"cat > site.conf <<'END'\n{text}END")  # fmt: skip


def _yaml(rng: random.Random) -> Work:
    names, image, port = rng.sample(NAMES, 3), rng.choice(WORDS), rng.randint(1000, 9999)
    text = lines(
        [
            f"image: {image}",
            "ports:",
            f"  - {port}",
            "people:",
            *(f"  - name: {n}\n    level: {i + 1}" for i, n in enumerate(names)),
        ]
    )
    say = (f"write deploy.yaml, a YAML file with three keys: image is {image}, ports is a list with the number {port}, and people a list of "
           f"mappings with name and level, for {', '.join(names)} with the levels 1, 2 and 3")  # fmt: skip
    return Work(say, [file("deploy.yaml", text, "yaml")], f"cat > deploy.yaml <<'END'\n{text}END")


def _env_to_json(rng: random.Random) -> Work:
    pairs = {word.upper(): rng.choice(NAMES) for word in rng.sample(WORDS, 5)}
    rows = [f"{k}={v}" for k, v in pairs.items()]
    rows.insert(2, "# a comment")
    rows.insert(4, "")
    return Work("turn app.env (lines KEY=value; comments and empty lines don't count) into app.json, an object with the same keys and values as strings",
                [file("app.json", json.dumps(pairs), "json")],
                "grep -v -e '^#' -e '^$' app.env | jq -Rn '[inputs | split(\"=\") | {(.[0]): .[1]}] | add' > app.json", {"app.env": lines(rows)})  # fmt: skip


def _overlay(rng: random.Random) -> Work:
    a, b, c, d = rng.sample(WORDS, 4)
    base = {a: {b: 1, c: rng.randint(2, 9)}, d: {"x": [1, 2]}, "kept": rng.choice(NAMES)}
    over = {a: {c: rng.randint(10, 99)}, d: {"x": [rng.randint(3, 9)]}, "new": rng.choice(NAMES)}
    after = {a: {b: 1, c: over[a][c]}, d: over[d], "kept": base["kept"], "new": over["new"]}  # type: ignore[index]
    return Work("write merged.json: base.json with what local.json says over it; objects are merged key by key at every depth, anything else is replaced",
                [file("merged.json", json.dumps(after), "json")], "jq -s '.[0] * .[1]' base.json local.json > merged.json",
                {"base.json": json.dumps(base), "local.json": json.dumps(over)})  # fmt: skip


def _to_toml(rng: random.Random) -> Work:
    before = _sections(rng)
    after = "\n".join(
        lines([f"[{n}]", *(f"{k} = {v}" for k, v in pairs.items())]) for n, pairs in sorted(before.items())
    )
    after = f"count = {len(before)}\n\n{after}"
    say = "turn app.ini into app.toml: a table for each section with its keys and the values as whole numbers, and at the top level a key count with the number of sections"
    return Work(say, [file("app.toml", after, "toml")],
                "{ echo \"count = $(grep -c '^\\[' app.ini)\"; echo; cat app.ini; } > app.toml", {"app.ini": _ini_text(before)})  # fmt: skip


def _proxy(rng: random.Random) -> Work:
    names = rng.sample(NAMES, 2)
    ports = [rng.randint(3000, 3999), rng.randint(4000, 4999)]
    body = "".join(
        f"    location /{n}/ {{\n        proxy_pass http://127.0.0.1:{p};\n    }}\n"
        for n, p in zip(names, ports, strict=True)
    )
    before = f"server {{\n    listen 80;\n    server_name example.org;\n{body}}}\n"
    new, port = rng.choice(WORDS), rng.randint(5000, 5999)
    more = f"    location /{new}/ {{\n        proxy_pass http://127.0.0.1:{port};\n        proxy_read_timeout 30s;\n    }}\n"
    after = f"server {{\n    listen {port + 1000};\n    server_name example.org;\n{body}{more}}}\n"
    say = f"in site.conf (nginx) let the server listen on {port + 1000} instead of 80, and add, after the other locations, a location /{new}/ that passes to http://127.0.0.1:{port} with a proxy_read_timeout of 30s"
    return Work(say, [file("site.conf", after, "nginx")], f"cat > site.conf <<'END'\n{after}END", {"site.conf": before})


TEMPLATES: Templates = {
    "easy": {"ini": _ini, "json_key": _json_key, "remove": _remove},
    "medium": {"nginx": _nginx, "yaml": _yaml, "env_to_json": _env_to_json},
    "hard": {"overlay": _overlay, "to_toml": _to_toml, "proxy": _proxy},
}
