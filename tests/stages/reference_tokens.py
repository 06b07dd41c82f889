"""The vocabularies as the installed tiktoken defines them, fed with the bundled ranks instead of
the network.
"""

from __future__ import annotations

from functools import cache

import pytest
import tiktoken
import tiktoken_ext.openai_public

from ctx_pipeline.language import tokens


@cache
def reference_encoding(name: str) -> tiktoken.Encoding:
    """Return an encoding made from tiktoken's own definition."""

    def ranks(url: str, expected_hash: str | None = None) -> dict[bytes, int]:
        return tokens._read_ranks(tokens._vocabulary_file(name), str(expected_hash))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiktoken_ext.openai_public, "load_tiktoken_bpe", ranks)
        return tiktoken.Encoding(**getattr(tiktoken_ext.openai_public, name)())
