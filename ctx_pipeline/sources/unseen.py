"""Characters that a model reads and a person does not see: taken out of what a source says, and
reported.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from ctx_pipeline.contracts import ContextItem, FileCode, FileError, ItemKind
from ctx_pipeline.text import canonical_json, legible, legible_json, sha256_hex, spelled, unreadable

if TYPE_CHECKING:
    from ctx_pipeline.sources.reading import SourceReading

SHOWN_CODE_POINTS = 3


@dataclass(slots=True)
class _Place:
    """What was found in one file."""

    line: int | None
    characters: int = 0
    kinds: dict[str, None] = field(default_factory=dict[str, None])


def without_unseen(batch: SourceReading) -> SourceReading:
    """Return a batch whose items have legible texts and spelled names, with one finding for each
    file that had others.

    A unit with such characters is read again at the next reading, and reported again. Clean items
    stay as they are.
    """
    items: list[ContextItem] = []
    places: dict[str, _Place] = {}
    changed: set[int] = set()
    for item in batch.items:
        found = _found(item)
        items.append(_cleaned(item) if found else item)
        if found:
            changed.add(id(item))
            where = item.provenance.locator
            place = places.setdefault(where.path or item.provenance.source_id, _Place(_line(item)))
            place.characters += len(found)
            place.kinds.update(dict.fromkeys(found))
    if not changed:
        return batch
    units = {
        unit: said
        for unit, said in batch.units.items()
        if not any(id(one) in changed for one in said)
    }
    errors = (_finding(path, place) for path, place in places.items())
    return replace(batch, items=tuple(items), errors=(*batch.errors, *errors), units=units)


def _names(item: ContextItem) -> tuple[str, ...]:
    where = item.provenance.locator
    names = (item.item_id, item.version, item.title, item.subject or "", where.url or "")
    return (*names, *item.depends_on, *item.supersedes)


def _found(item: ContextItem) -> list[str]:
    """Return the characters of an item that are not legible, each as often as it stands there.

    U+FFFD stands for what was no text. In a name, and in what describes a database, it is in plain
    sight and nobody can remove it.
    """
    texts = (item.content or "", *item.synonyms, *item.provenance.locator.heading_path)
    found = [text[at] for text in texts for at in unreadable(text)]
    if item.kind is ItemKind.SCHEMA:
        found = [char for char in found if char != "\ufffd"]
    found += [name[at] for name in _names(item) for at in unreadable(name) if name[at] != "\ufffd"]
    if item.kind is ItemKind.TOOL and "\\u" in (item.content or ""):
        # JSON escapes control characters: a provider's parser brings them back.
        content = _strings(json.loads(item.content or "null"))
        found += [char for char in content if char < " " and unreadable(char)]
    return found


def _strings(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "".join(key + _strings(part) for key, part in cast("dict[str, Any]", value).items())
    return (
        "".join(_strings(part) for part in cast("list[Any]", value))
        if isinstance(value, list)
        else ""
    )


def _cleaned(item: ContextItem) -> ContextItem:
    where = item.provenance.locator
    locator = where.model_copy(
        update={
            "url": None if where.url is None else spelled(where.url),
            "heading_path": tuple(legible(heading) for heading in where.heading_path),
        }
    )
    update: dict[str, Any] = {
        "item_id": spelled(item.item_id),
        "version": spelled(item.version),
        "subject": None if item.subject is None else spelled(item.subject),
        "title": legible(item.title),
        "synonyms": tuple(legible(name) for name in item.synonyms),
        "depends_on": tuple(spelled(name) for name in item.depends_on),
        "supersedes": tuple(spelled(name) for name in item.supersedes),
        "provenance": item.provenance.model_copy(update={"locator": locator}),
    }
    if item.content is not None:
        content = _content(item, item.content)
        update |= {"content": content, "content_hash": sha256_hex(content)}
    return item.model_copy(update=update)


def _content(item: ContextItem, content: str) -> str:
    if item.kind is not ItemKind.TOOL:
        return legible(content)
    return legible(canonical_json(legible_json(json.loads(content))))


def _line(item: ContextItem) -> int | None:
    """Return the line of the first such character, as far as the item knows its lines."""
    where = item.provenance.locator
    places = unreadable(item.content or "")
    if where.line_start is None or not places:
        return where.line_start
    line = where.line_start + (item.content or "").count("\n", 0, places[0])
    return min(line, where.line_end or line)


def _finding(path: str, place: _Place) -> FileError:
    points = [f"U+{ord(char):04X}" for char in place.kinds]
    more = len(points) - SHOWN_CODE_POINTS
    named = ", ".join(points[:SHOWN_CODE_POINTS]) + (f" and {more} more" if more > 0 else "")
    message = (
        f"{place.characters} characters that nobody sees or that are no text "
        f"({named}): they are taken out, or shown "
        "as U+FFFD; remove them"
    )
    return FileError(path=path, line=place.line, code=FileCode.HIDDEN_CHARACTERS, message=message)
