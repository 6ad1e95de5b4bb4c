"""The exact bytes behind every token of a byte-level BPE vocabulary. Loads no torch.

Byte-level BPE writes each byte as one printable character; undoing that per token once makes decoding and the search
for stop strings a matter of joining bytes, with no tokenizer call per step. Left out: vocabularies that are not
byte-level (SentencePiece), which are refused.
"""

from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer


def byte_alphabet() -> dict[str, int]:
    """The printable character that stands for each byte in a byte-level vocabulary (the GPT-2 alphabet), reversed."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(256 + position): byte for position, byte in enumerate(others)})
    return alphabet


class TokenBytes:
    """`table[id]` is the bytes of the token; `special` holds the ids of added (control) tokens."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        """Builds the table. Raises ValueError when a token is not made of byte-level characters."""
        added = {index: token.content for index, token in tokenizer.get_added_tokens_decoder().items()}
        alphabet = byte_alphabet()
        self.special = frozenset(added)
        self.table: list[bytes] = [b""] * vocab_size
        for token, index in tokenizer.get_vocab(with_added_tokens=True).items():
            if index >= vocab_size:
                raise ValueError(f"token {token!r} has id {index}, beyond the model's vocabulary of {vocab_size}")
            if index in added:
                self.table[index] = added[index].encode()
                continue
            try:
                self.table[index] = bytes(alphabet[character] for character in token)
            except KeyError:
                raise ValueError(
                    f"token {token!r} is not byte-level BPE: only byte-level tokenizers are supported"
                ) from None

    def join(self, ids: Iterable[int], *, skip_special: bool = True) -> bytes:
        """The bytes of a sequence of ids; control tokens are left out unless asked for."""
        special = self.special if skip_special else frozenset()
        return b"".join(self.table[index] for index in ids if index not in special)

    def text(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of a sequence of ids; bytes that are not UTF-8 become U+FFFD."""
        return self.join(ids, skip_special=skip_special).decode("utf-8", errors="replace")
