"""Names that are given twice in a list of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ctx_pipeline.config.layers import Layer, Problem


def duplicates(
    table: str,
    key: str,
    names: Iterable[str],
    layer: Layer,
    *,
    told_apart: Callable[[str], str] = str,
) -> Iterator[Problem]:
    """Yield a problem for each table whose name an earlier one has, or one that cannot be told from it.

    `told_apart` is what a name is known by.
    """
    seen: dict[str, tuple[int, str]] = {}
    for index, name in enumerate(names):
        first, earlier = seen.setdefault(told_apart(name), (index, name))
        if first == index:
            continue
        taken = (
            "is taken"
            if earlier == name
            else f"cannot be told from {earlier!r} in the asset graph or in folders"
        )
        yield Problem(
            layer.origin((table, index, key)) or table,
            f"{key} {name!r} {taken}",
            f"rename it; the other is at {layer.origin((table, first, key))}",
            f"duplicate_{table.removesuffix('s')}",
        )


def source_place(name: str) -> str:
    """Return what the asset graph and the folders of a project know a source by.

    There `-` is `_`, and on some disks upper case is lower case.
    """
    return name.replace("-", "_").casefold()
