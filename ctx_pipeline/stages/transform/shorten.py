"""Shorten: a long text in a number of tokens. What tells most stays, and what was cut between is
said.

The start, the end and the lines that stand out (`salience`) stay with their context; the room that
is left goes to the end and the start. What is one long line, as JSON or a page without line ends,
is cut between its clauses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from ctx_pipeline.stages.transform.salience import shape_of, telling

LINE_CHARS = 240
"""Longer lines are taken apart into pieces of about half this length."""
BEFORE, AFTER = 2, 3
"""Lines of context around what stands out."""
TRACE_LINES = 30
"""Indented lines after it, as a stack trace has them, that belong to it."""
HEAD_SHARE, TAIL_SHARE = 0.1, 0.2
"""Shares of the room that the start and the end have before anything else."""
TELLING_SHARE = 0.85
"""Share of the room that is used up before the rest goes to the end and the start alone."""
GAP_BYTES = 60
"""What saying that something was left out takes, about."""
ATTEMPTS = 6
"""Times that a text is cut again to come nearer to the tokens that it may have."""
ENOUGH = 0.9
"""Share of the tokens that it may have from which a cut is not tried again."""
EXAMPLE_CHARS = 60
COMPARED = 5_000
"""Lines of those left out between two others that are compared to say what most of them are like.
"""

_CLAUSE = re.compile(r"[,;}\]\s，。；、！？]")
CountTokens = Callable[[str], int]


class LongText:
    """A text that is cut to several sizes. What each of them needs of it is looked for once."""

    def __init__(self, text: str, looked_at: int | None = None) -> None:
        """Look at so many characters of a text, more of its end than of its start; None: at all of
        it.
        """
        self._pieces: list[str] = []
        self._ends_line: list[bool] = []
        self._skipped, self._skipped_lines = -1, 0
        if looked_at is None or len(text) <= looked_at:
            self._take_apart(text)
        else:
            head, tail = looked_at // 3, looked_at - looked_at // 3
            self._take_apart(text[:head])
            self._skipped = len(self._pieces)
            self._pieces.append(text[head:-tail])
            self._skipped_lines = self._pieces[-1].count("\n")
            self._ends_line[-1:] = [False, False]
            self._take_apart(text[-tail:])
        self._bytes = [len(piece) * (1 if piece.isascii() else 3) + 1 for piece in self._pieces]
        self._total_bytes = sum(self._bytes)
        seen = ["" if at == self._skipped else piece for at, piece in enumerate(self._pieces)]
        self._shapes = [shape_of(piece) for piece in seen]
        self._telling = list(telling(seen, self._shapes))

    def _take_apart(self, text: str) -> None:
        for line in text.split("\n"):
            if len(line) > LINE_CHARS:
                parts = list(_parts(line))
                self._pieces += parts
                self._ends_line += [False] * (len(parts) - 1) + [True]
            else:
                self._pieces.append(line)
                self._ends_line.append(True)

    def cut(self, most: int, tokens_of: CountTokens) -> str | None:
        """Return the text in at most `most` tokens by `tokens_of`, which may count what is put
        around it too.

        None where not even its shortest form fits.
        """
        room = most * 3
        best, best_tokens = None, 0
        for _ in range(ATTEMPTS):
            text = self._rendered(self._kept(room))
            tokens = tokens_of(text)
            if best_tokens < tokens <= most:
                best, best_tokens = text, tokens
            if most * ENOUGH <= tokens <= most or (tokens <= most and room >= self._total_bytes):
                break
            aim = most * (0.97 if tokens > most else 1.0)
            room = max(
                1, int(room * min(4.0, aim / max(1, tokens)) * (0.95 if tokens > most else 1.0))
            )
        return best

    def _kept(self, room: int) -> list[int]:
        """Return the numbers of the pieces that fit into so many bytes."""
        take = _Taking(self._bytes, room)
        take.one(len(self._pieces) - 1)
        take.one(0)
        take.run(range(len(self._pieces) - 1, -1, -1), room * (1 - TAIL_SHARE))
        take.run(range(len(self._pieces)), room * (1 - TAIL_SHARE - HEAD_SHARE))
        for at in self._telling:
            if take.left < room * (1 - TELLING_SHARE):
                break
            take.all(self._context(at))
        take.run(range(len(self._pieces) - 1, -1, -1), take.left / 3)
        take.run(range(len(self._pieces)), 0)
        return sorted(take.taken)

    def _context(self, at: int) -> Iterator[int]:
        """Yield a piece, then what stands around it, the nearest first."""
        yield at
        last = min(len(self._pieces), at + 1 + TRACE_LINES)
        after = at + 1
        while after < last and self._pieces[after][:1] in (" ", "\t"):
            yield after
            after += 1
        yield from range(after, min(len(self._pieces), max(after + 1, at + 1 + AFTER)))
        yield from range(at - 1, max(-1, at - 1 - BEFORE), -1)

    def _rendered(self, kept: Sequence[int]) -> str:
        parts: list[str] = []
        for before, at in pairwise((-1, *kept, len(self._pieces))):
            if at > before + 1:
                parts.append(self._gap(before + 1, at))
            if at < len(self._pieces):
                parts.append(self._pieces[at] + ("\n" if self._ends_line[at] else ""))
        return "".join(parts).rstrip("\n")

    def _gap(self, first: int, last: int) -> str:
        """Say what was left out: whole lines by their number, parts of a line
        by their characters.
        """
        whole = (first == 0 or self._ends_line[first - 1]) and self._ends_line[last - 1]
        lines = sum(self._ends_line[first:last])
        if first <= self._skipped < last:
            lines += self._skipped_lines
        if not whole or (lines == 1 and last - first > 1):
            characters = sum(map(len, self._pieces[first:last]))
            end = "\n" if self._ends_line[last - 1] else ""
            return f"… {characters:,} characters left out …{end}"
        example, alike = self._example(first, last)
        if alike == lines > 1:
            return f"… {lines:,} lines like {example} left out …\n"
        if alike * 2 > min(lines, COMPARED) and lines > 2:
            return f"… {lines:,} lines, most like {example}, left out …\n"
        return f"… {lines:,} {'line' if lines == 1 else 'lines'} left out …\n"

    def _example(self, first: int, last: int) -> tuple[str, int]:
        """Return the first piece of the commonest form, short, and how many have it."""
        forms = Counter(self._shapes[first : min(last, first + COMPARED)])
        form, number = forms.most_common(1)[0]
        piece = self._pieces[self._shapes.index(form, first)].strip()
        short = piece if len(piece) <= EXAMPLE_CHARS else piece[: EXAMPLE_CHARS - 1] + "…"
        return f"“{short}”", number if form.strip() else 0


class _Taking:
    """Takes pieces while there is room."""

    def __init__(self, sizes: Sequence[int], room: int) -> None:
        self.left: float = room
        self.taken: set[int] = set()
        self._sizes = sizes

    def one(self, at: int, spare: float = 0.0) -> bool:
        """Take a piece if that leaves `spare`; what stands alone needs room for
        the gap beside it.
        """
        if at in self.taken:
            return True
        gap = 0 if at - 1 in self.taken or at + 1 in self.taken else GAP_BYTES
        if self._sizes[at] + gap > self.left - spare:
            return False
        self.taken.add(at)
        self.left -= self._sizes[at] + gap
        return True

    def run(self, places: Sequence[int], spare: float) -> None:
        """Take pieces in a row until one does not fit."""
        for at in places:
            if not self.one(at, spare):
                return

    def all(self, places: Iterator[int]) -> None:
        """Take a piece and then what is around it, as far as there is room."""
        if self.one(next(places)):
            for at in places:
                self.one(at)


def _parts(line: str) -> Iterator[str]:
    """Yield the parts of a long line, each ending where a clause does, if one ends."""
    start, half = 0, LINE_CHARS // 2
    while len(line) - start > LINE_CHARS:
        found = _CLAUSE.search(line, start + half, start + LINE_CHARS)
        end = start + half if found is None else found.end()
        yield line[start:end]
        start = end
    yield line[start:]
