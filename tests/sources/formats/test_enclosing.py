"""A code block longer than a chunk: each piece of it is fenced, none ends with a lone fence."""

from __future__ import annotations

import re

import pytest

from ctx_pipeline.sources.formats.enclosing import blocks
from ctx_pipeline.sources.formats.splitting import Outline, split_text

CODE = "\n".join(f"# step {n} 第{n}步\nrun --opt {n} value value value" for n in range(60))
PROSE = "Install the tool first. 先安装工具。 " * 20


def pieces(text: str) -> list[str]:
    return [chunk.content for chunk in split_text(text, markdown=True)]


def indented(code: str, by: str) -> str:
    return "\n".join(by + line for line in code.split("\n"))


@pytest.mark.parametrize(
    ("opening", "closing", "by"),
    [
        ("```bash", "```", ""),
        ("~~~ python", "~~~", ""),
        ("````md", "````", ""),
        ("```", "```", ""),
        ("    ```bash", "    ```", "    "),
        ("   ~~~~sh", "   ~~~~", "   "),
        ("> ```bash", "> ```", "> "),
    ],
)
def test_every_piece_of_a_code_block_is_fenced_with_its_language(
    opening: str, closing: str, by: str
):
    text = f"# Setup\n\n{PROSE}\n\n{opening}\n{indented(CODE, by)}\n{closing}\n\n# Next\n\nDone.\n"
    found = pieces(text)
    steps = [piece for piece in found if "run --opt" in piece]
    assert len(steps) >= 2
    for piece in steps:
        code = piece[piece.index(opening) :].split("\n")
        assert code[0] == opening
        assert closing in code
    for piece in found:
        fences = [line for line in piece.split("\n") if line.strip(" >").startswith(("```", "~~~"))]
        assert len(fences) % 2 == 0
        assert not (fences and piece.rstrip().endswith(opening) and opening != closing)
    assert sum(piece.count("run --opt") for piece in found) == 60


def test_a_comment_in_a_code_block_is_no_heading():
    for opening, by in (("```bash", ""), ("    ```bash", "    "), ("1. ```bash", "   ")):
        text = f"# Setup\n\n{opening}\n# step 1\n{by}run\n{by}```\n\n# Next\n"
        assert [heading.text for heading in Outline(text).headings] == ["Setup", "Next"]


def test_a_fence_within_a_longer_fence_does_not_close_it():
    inner = "\n".join(f"```py\nprint({n})\n```\n\n# 标题 {n}\n" for n in range(80))
    text = f"# Guide\n\n{PROSE}\n\n````md\n{inner}````\n\nEnd."
    assert [heading.text for heading in Outline(text).headings] == ["Guide"]
    for piece in pieces(text):
        if "print(" in piece:
            assert piece.count("````md") == 1
            assert len(re.findall("^````$", piece, re.MULTILINE)) == 1


def test_a_block_that_nobody_closes_goes_to_the_end():
    found = pieces(f"# Setup\n\n```sh\n{CODE}")
    assert all(piece.count("```sh") == 1 for piece in found)
    assert all(piece.rstrip().endswith("```") for piece in found)


def test_the_rows_of_a_table_keep_their_header():
    rows = "\n".join(f"| key {n} | 值 value {n} {'x' * 30} |" for n in range(80))
    text = f"# Keys\n\n| name | meaning |\n| --- | --- |\n{rows}\n\nThe end."
    found = [piece for piece in pieces(text) if "| key" in piece]
    assert len(found) > 2
    assert all("| name | meaning |\n| --- | --- |\n| key" in piece for piece in found)


def test_what_is_no_fence_encloses_nothing():
    assert blocks("Use ```x``` here.\n\nand `` ` `` there\n\n| a | b\n\nc | d\n") == ()
