"""Deadline: what an assembly leaves out when the caller has no time for it."""

from __future__ import annotations

import time

from ctx_pipeline.contracts import PackWarning

CHARS_A_MILLISECOND = 1_000
"""Characters of a text that can be looked at in a millisecond, with some to spare."""
LEAST_CHARS = 50_000
"""Characters that are looked at however late it is."""


class Deadline:
    """What there is no time for, where the call has a deadline."""

    def __init__(self, milliseconds: int | None) -> None:
        self._milliseconds = milliseconds
        self._end = None if milliseconds is None else time.perf_counter() + milliseconds / 1_000
        self._left_out: list[str] = []
        self._missed = False

    def allows(self, seconds: float) -> bool:
        """Tell whether so much time is left."""
        return self._end is None or time.perf_counter() + seconds <= self._end

    def has_time_for(self, what: str, seconds: float) -> bool:
        """Tell whether there is time for something, and note it as left out where there is none."""
        allowed = self.allows(seconds)
        if not allowed:
            self.leave_out(what)
        return allowed

    def has_spent_less(self, share: float, what: str) -> bool:
        """Tell whether less than a share of the time is gone; else note that something was left
        out.
        """
        if self._milliseconds is None:
            return True
        return self.has_time_for(what, self._milliseconds * (1 - share) / 1_000)

    def characters(self) -> int | None:
        """Return how many characters of a text there is time to look at; None: all of them."""
        if self._end is None:
            return None
        left = self._end - time.perf_counter()
        return max(LEAST_CHARS, int(left * 1_000 * CHARS_A_MILLISECOND))

    def leave_out(self, what: str) -> None:
        """Note that something was left out for want of time."""
        if what not in self._left_out:
            self._left_out.append(what)

    def finish(self) -> None:
        """Note whether the deadline was met."""
        self._missed = not self.allows(0.0)

    @property
    def warnings(self) -> tuple[PackWarning, ...]:
        """What the caller should know."""
        found: list[PackWarning] = []
        if self._left_out:
            message = f"deadline_ms {self._milliseconds}: left out {', '.join(self._left_out)}"
            found.append(PackWarning(code="deadline_degraded", message=message))
        if self._missed:
            message = f"deadline_ms {self._milliseconds}: the pack was finished later"
            found.append(PackWarning(code="deadline_exceeded", message=message))
        return tuple(found)
