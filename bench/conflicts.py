"""How many contradictions are found and resolved as the policy says, and how many are found that
are none.

Run: `python -m bench.conflicts [--count 50] [--seed 7] [--show]`. All cases lie in one index; each
is asked for alone. `--corpora` builds indexes over the public corpora, asks many questions, and
writes conflicts to judge.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bench.conflict_cases import NOW, ConflictCase, cases
from ctx_pipeline.contracts import ContextPack, ContextRequest, Task
from testing.artifacts import ANA, make_project, open_project


def verdict(case: ConflictCase, pack: ContextPack) -> tuple[bool, bool]:
    """Return whether the two sides are in one conflict, and whether it came out
    as the policy says.
    """
    for record in pack.conflicts:
        sides = {side.item_id for side in record.losers} | (
            {record.winner.item_id} if record.winner else set()
        )
        if set(case.sides) <= sides:
            winner = record.winner.item_id if record.winner else None
            shown = {item.item_id for item in pack.items}
            right = winner == case.winner and (winner is None or case.sides[1] not in shown)
            return True, right
    return False, False


def run(all_cases: Sequence[ConflictCase], home: Path, *, show: bool) -> None:
    items = [item for case in all_cases for item in case.items]
    make_project(home, items, head="[policy]\ncandidate_limit = 250\n")
    found: Counter[tuple[str, str]] = Counter()
    right: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    with open_project(home) as project:
        for case in all_cases:
            request = ContextRequest(task=Task(text=case.ask), identity=ANA, token_budget=60_000)
            pack = project.assemble(request, at=NOW)
            key = (case.family, case.half)
            is_found, is_right = verdict(case, pack)
            total[key] += 1
            found[key] += is_found
            right[key] += is_right
            if show and (is_found != case.contradicts or (case.contradicts and not is_right)):
                print(
                    "MISSED" if case.contradicts and not is_found else "WRONG",
                    case.family,
                    case.half,
                    case.winner,
                )
                for item in case.items:
                    print("    ", item.item_id, "|", (item.content or "").replace("\n", " / "))
    report(total, found, right)


def report(
    total: Counter[tuple[str, str]],
    found: Counter[tuple[str, str]],
    right: Counter[tuple[str, str]],
) -> None:
    for key in sorted(total):
        name = f"{key[0]:<22}{key[1]:<10}{total[key]:>5}"
        if key[0].startswith("no:"):
            print(f"{name}  false {found[key] / total[key]:.3f}")
        else:
            print(
                f"{name}  found {found[key] / total[key]:.3f}  resolved "
                f"{right[key] / total[key]:.3f}"
            )
    for half in ("tuned", "held_out", "unseen"):
        if all(key[1] != half for key in total):
            continue
        real = [key for key in total if key[1] == half and not key[0].startswith("no:")]
        none = [key for key in total if key[1] == half and key[0].startswith("no:")]
        count = sum(total[key] for key in real)
        print(
            f"all {half:<28}{count:>5}  found {sum(found[key] for key in real) / count:.3f}  "
            f"resolved {sum(right[key] for key in real) / count:.3f}  "
            f"false {sum(found[key] for key in none) / sum(total[key] for key in none):.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--count", type=int, default=50, help="contradictions of each family and half"
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--show", action="store_true", help="print what is missed and what is wrong"
    )
    parser.add_argument("--half", choices=("tuned", "held_out", "unseen"), help="only this half")
    parser.add_argument("--corpora", type=Path, help="a folder with the public corpora")
    parser.add_argument(
        "--out", type=Path, default=Path("conflicts.jsonl"), help="where conflicts to judge go"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.corpora:
            from bench.conflict_corpora import run_corpora

            run_corpora(Path(folder), options.corpora, options.out, options.seed)
            return
        chosen = [
            case for case in cases(options.count, options.seed) if options.half in (None, case.half)
        ]
        run(chosen, Path(folder), show=options.show)


if __name__ == "__main__":
    main()
