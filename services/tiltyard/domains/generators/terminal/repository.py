"""Git: commits, branches, tags, history, merges."""

from __future__ import annotations

import random

from .work import NAMES, WORDS, Templates, Work, file, git, lines, some

_BEGIN = """git init -q -b main .
git config user.name Someone
git config user.email someone@example.org
export GIT_AUTHOR_DATE='2026-01-02T03:04:05Z' GIT_COMMITTER_DATE='2026-01-02T03:04:05Z'"""
_LOG = "log --format=%s"


def _write(path: str, text: str) -> str:
    return f"printf '%s' '{text}' > {path}"


def _commit(path: str, text: str, message: str) -> str:
    return f"{_write(path, text)}\ngit add {path}\ngit commit -q -m '{message}'"


def _history(rng: random.Random, path: str, count: int) -> tuple[list[tuple[str, str]], str]:
    """Messages and texts of commits of a file, and the set-up that makes them."""
    words = rng.sample(WORDS, count)
    commits = [
        (f"{rng.choice(('Add', 'Change', 'Note'))} {word}", lines(words[: i + 1])) for i, word in enumerate(words)
    ]
    return commits, "\n".join([_BEGIN, *(_commit(path, text, message) for message, text in commits)])


def _commit_file(rng: random.Random) -> Work:
    path, message = f"{rng.choice(NAMES)}.txt", f"Add {rng.choice(WORDS)}"
    commits, setup = _history(rng, "base.txt", 2)
    text = lines(some(rng))
    said = [message, *(m for m, _ in reversed(commits))]
    return Work(f"add the new file {path} to the git repository and commit it with the message '{message}'",
                [git(_LOG, lines(said)), git(f"show HEAD:{path}", text), git("status --porcelain", "")],
                f"git add {path}\ngit commit -m '{message}'", setup=f"{setup}\n{_write(path, text)}")  # fmt: skip


def _branch(rng: random.Random) -> Work:
    commits, setup = _history(rng, "base.txt", 3)
    name, path, message = rng.choice(WORDS), f"{rng.choice(NAMES)}.txt", f"Try {rng.choice(NAMES)}"
    text, said = lines(some(rng, 1, 3)), [m for m, _ in reversed(commits)]
    command = f"git checkout -q -b {name}\n{_write(path, text)}\ngit add {path}\ngit commit -m '{message}'\ngit checkout -q main"
    shown = " ".join(text.split())
    return Work(f"make a branch {name} from main and commit there, with the message '{message}', the file {path} with these words one a line: {shown}; then go back to main, which stays as it is",
                [git(f"{_LOG} {name}", lines([message, *said])), git(f"show {name}:{path}", text), git(f"{_LOG} main", lines(said)),
                 git("symbolic-ref HEAD", "refs/heads/main")], command, setup=setup)  # fmt: skip


def _tag(rng: random.Random) -> Work:
    commits, setup = _history(rng, "base.txt", 5)
    at, name = rng.randint(1, 3), f"v{rng.randint(1, 9)}.{rng.randint(0, 9)}"
    message = commits[at][0]
    return Work(f"put the tag {name} on the commit with the message '{message}'",
                [git(f"log -1 --format=%s refs/tags/{name}", message), git(_LOG, lines(m for m, _ in reversed(commits)))],
                f"git tag {name} HEAD~{len(commits) - 1 - at}", setup=setup)  # fmt: skip


def _restore(rng: random.Random) -> Work:
    commits, setup = _history(rng, "list.txt", 5)
    at = rng.randint(0, 2)
    message, text = commits[at]
    new = f"Back to {rng.choice(NAMES)}"
    say = f"give list.txt again the content that it had in the commit '{message}', and commit that on main with the message '{new}'; keep the history"
    return Work(say, [git(_LOG, lines([new, *(m for m, _ in reversed(commits))])), git("show HEAD:list.txt", text),
                      file("list.txt", text)],
                f"git checkout -q HEAD~{len(commits) - 1 - at} -- list.txt\ngit commit -m '{new}'", setup=setup)  # fmt: skip


def _deleted(rng: random.Random) -> Work:
    _, setup = _history(rng, "list.txt", 3)
    path, text = f"{rng.choice(NAMES)}.txt", lines(some(rng))
    more = f"{_commit(path, text, 'Add a file')}\ngit rm -q {path}\ngit commit -q -m 'Remove a file'\n{_commit('z.txt', 'z', 'Add z')}"
    return Work(f"the file {path} was deleted in an earlier commit; bring it back with its last content and commit it with the message 'Bring back'",
                [file(path, text), git(f"show HEAD:{path}", text), git("log -1 --format=%s", "Bring back")],
                f"git checkout -q $(git rev-list -n 1 HEAD -- {path})~1 -- {path}\ngit commit -m 'Bring back'", setup=f"{setup}\n{more}")  # fmt: skip


def _report(rng: random.Random) -> Work:
    people = rng.sample(NAMES, 3)
    authors = [rng.choice(people) for _ in range(rng.randint(5, 9))]
    steps = [
        f"{_write('list.txt', str(i))}\ngit add list.txt\ngit commit -q -m 'Step {i}' --author '{name} <{name}@example.org>'"
        for i, name in enumerate(authors)
    ]
    counts = sorted({name: authors.count(name) for name in authors}.items())
    return Work("write into authors.txt, for each author of the commits on main, a line 'name count', sorted by name; don't commit it",
                [file("authors.txt", lines(f"{n} {c}" for n, c in counts)), git("rev-list --count HEAD", str(len(authors)))],
                "git log --format=%an | LC_ALL=C sort | uniq -c | awk '{ print $2, $1 }' > authors.txt",
                setup="\n".join([_BEGIN, *steps]))  # fmt: skip


def _conflict(rng: random.Random) -> Work:
    a, b, c = rng.sample(WORDS, 3)
    base, ours, theirs = lines([a, "middle", c]), lines([a, f"our {b}", c]), lines([a, f"their {b}", c])
    setup = "\n".join([_BEGIN, _commit("list.txt", base, "Begin"), "git checkout -q -b other",
                       _commit("list.txt", theirs, "Their change"), "git checkout -q main",
                       _commit("list.txt", ours, "Our change")])  # fmt: skip
    text = lines([a, f"our {b}", f"their {b}", c])
    say = "merge the branch other into main with a merge commit whose message is 'Merge other'; where list.txt conflicts keep both lines, ours first"
    command = f"git merge other\n{_write('list.txt', text)}\ngit add list.txt\ngit commit -m 'Merge other'"
    return Work(say, [file("list.txt", text), git("show HEAD:list.txt", text), git("log -1 --format=%s", "Merge other"),
                      git("log -1 --format=%s HEAD^2", "Their change"), git("log -1 --format=%s HEAD^1", "Our change"),
                      git("status --porcelain", "")], command, setup=setup)  # fmt: skip


def _culprit(rng: random.Random) -> Work:
    words = rng.sample(WORDS, 7)
    at, wrong = rng.randint(2, 5), rng.choice(NAMES)
    steps, text = [], ""
    for i, word in enumerate(words):
        text += f"{wrong if i == at else word} {i}\n"
        steps.append(_commit("list.txt", text, f"Step {word}"))
    more = _commit("other.txt", wrong, "Mention it elsewhere")
    return Work(f"write the message of the commit that brought the word {wrong} into list.txt into culprit.txt (only the first line of the message); don't commit it",
                [file("culprit.txt", f"Step {words[at]}"), git("rev-list --count HEAD", "8")],
                f"git log --reverse -S {wrong} --format=%s -- list.txt | head -n 1 > culprit.txt",
                setup="\n".join([_BEGIN, *steps, more]))  # fmt: skip


def _pick(rng: random.Random) -> Work:
    words, names = rng.sample(WORDS, 4), rng.sample(NAMES, 3)
    setup = "\n".join([_BEGIN, _commit("base.txt", lines(words), "Begin"), "git checkout -q -b topic",
                       *(_commit(f"{name}.txt", lines([name, words[i]]), f"Add {name}") for i, name in enumerate(names)),
                       "git checkout -q main", _commit("base.txt", lines(words[:2]), "Shorten")])  # fmt: skip
    at = rng.randrange(3)
    say = f"take only the commit 'Add {names[at]}' of the branch topic over to main, with its message; nothing else of topic"
    return Work(say, [git(_LOG, lines([f"Add {names[at]}", "Shorten", "Begin"])),
                      git("ls-tree --name-only HEAD", lines(sorted(["base.txt", f"{names[at]}.txt"])))],
                f"git cherry-pick topic~{2 - at}", setup=setup)  # fmt: skip


TEMPLATES: Templates = {
    "easy": {"commit": _commit_file, "branch": _branch, "tag": _tag},
    "medium": {"restore": _restore, "deleted": _deleted, "report": _report},
    "hard": {"conflict": _conflict, "culprit": _culprit, "pick": _pick},
}
