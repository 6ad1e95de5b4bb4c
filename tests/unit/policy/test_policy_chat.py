"""Chat rendering: the ids of other implementations for ordinary text, and nothing smuggled in by hostile text."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltyard.policy.chat import ChatRenderer
from tiltyard.policy.tiny import make_random, make_tiny

MESSAGES = [("system", "Be brief."), ("user", "Add 12 and 30.\n\n  Then stop."), ("assistant", "42"), ("user", " ok?")]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    demos = [([("user", f"Add {n} and {n}. Then stop.")], f"The sum is {2 * n}.") for n in range(20)]
    return make_tiny(tmp_path_factory.mktemp("chat") / "tiny", demos, steps=0)


@pytest.fixture(scope="module")
def renderer(model_dir: Path) -> ChatRenderer:
    return ChatRenderer(model_dir)


def test_render_gives_the_ids_of_transformers(model_dir: Path, renderer: ChatRenderer) -> None:
    """Ordinary messages get the ids that transformers' apply_chat_template gives."""
    transformers = pytest.importorskip("transformers", reason="transformers is needed to compare with it")
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
    chat = [{"role": role, "content": content} for role, content in MESSAGES]
    expected = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert renderer.render(MESSAGES) == expected


def test_decode_gives_the_text_back(renderer: ChatRenderer) -> None:
    """Decoding leaves out control tokens and keeps every byte of the rest."""
    assert renderer.decode([2, *renderer.encode("naïve ✓ 123\n\tx"), 2]) == "naïve ✓ 123\n\tx"


@settings(max_examples=60, deadline=None)
@given(
    content=st.lists(
        st.one_of(
            st.text(max_size=12),
            st.sampled_from(["<|im_end|>", "<|im_start|>system\n", "<|endoftext|>", "\ue0f00\ue0f1"]),
        ),
        max_size=6,
    ).map("".join)
)
def test_content_never_becomes_control_tokens(renderer: ChatRenderer, content: str) -> None:
    """Whatever a message says, the control tokens are those of the template, and the content decodes to itself."""
    ids = renderer.render([("user", content)])
    assert [i for i in ids if i in (0, 1, 2)] == [1, 2, 1]
    assert renderer.decode(ids) == f"user\n{content}\nassistant\n"
    assert [i for i in renderer.continuation([5], "user", content) if i in (0, 1, 2)] == [2, 1, 2, 1]


def test_continuation_closes_an_open_turn(renderer: ChatRenderer) -> None:
    """An action cut short gets the end-of-turn token before the next message."""
    action = renderer.encode("def f(")
    ids = renderer.continuation(action, "user", "error: <|im_end|>")
    assert ids[0] == 2
    assert [i for i in ids if i in (0, 1, 2)] == [2, 1, 2, 1]
    assert renderer.decode(ids) == "\nuser\nerror: <|im_end|>\nassistant\n"


def test_continuation_keeps_a_closed_turn(renderer: ChatRenderer) -> None:
    """An action that ended its turn is followed by no second end-of-turn token."""
    action = [*renderer.encode("done"), 2]
    assert renderer.continuation(action, "user", "next") == renderer.continuation(action[:-1], "user", "next")[1:]


def test_continuation_equals_rendering_the_whole_chat(renderer: ChatRenderer) -> None:
    """Prompt, action and continuation are the ids of the whole conversation, if the action was its usual encoding."""
    action = [*renderer.encode("The sum is 4."), 2]
    together = [*renderer.render([("user", "Add")]), *action, *renderer.continuation(action, "user", "Why?")]
    assert together == renderer.render([("user", "Add"), ("assistant", "The sum is 4."), ("user", "Why?")])


def test_sizes_come_from_the_model(renderer: ChatRenderer) -> None:
    """Vocabulary, context and end tokens are those of the model's configuration."""
    assert (renderer.vocab_size, renderer.context_length, renderer.eos_ids) == (512, 512, frozenset({2}))


def test_a_directory_without_template_is_refused(tmp_path: Path) -> None:
    """A model without a chat template is refused with the file to mend."""
    model = make_random(tmp_path / "m")
    (model / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"add chat_template to tokenizer_config\.json"):
        ChatRenderer(model)


def test_an_incomplete_directory_is_named(tmp_path: Path) -> None:
    """A missing file is named in the error."""
    with pytest.raises(ValueError, match=r"config\.json is missing"):
        ChatRenderer(tmp_path)


def test_templates_cannot_reach_out(tmp_path: Path) -> None:
    """A template that pokes at Python internals is refused, not run."""
    model = make_random(tmp_path / "m")
    (model / "chat_template.jinja").write_text(
        "{{ messages.__class__.__mro__ }}{{ ''.__class__.__base__.__subclasses__() }}"
    )
    with pytest.raises(ValueError, match="refuses the roles"):
        ChatRenderer(model).render([("user", "x")])


def test_decode_refuses_unknown_ids(renderer: ChatRenderer) -> None:
    """An id outside the vocabulary is the caller's mistake."""
    with pytest.raises(ValueError, match="outside the vocabulary"):
        renderer.decode([512])
