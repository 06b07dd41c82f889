"""What a record may say of itself, checked; and the context item that a record becomes."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ctx_pipeline.contracts import (
    ContextItem,
    FileCode,
    FileError,
    ImportedContract,
    ItemKind,
    Locator,
    Media,
    Provenance,
    Scope,
    Sensitivity,
    Trust,
)
from ctx_pipeline.sources.files import FoundFile
from ctx_pipeline.sources.origin import Origin
from ctx_pipeline.text import MAX_BLANK_RUN, normalise, short_hash

MAX_NAME_CHARS = 512


def parse_time(value: Any) -> Any:
    """Turn an ISO 8601 text, a date or a datetime into an aware UTC datetime; a date alone is its
    midnight UTC.

    Raises:
        PydanticCustomError: type `naive_time` for a time without zone, `bad_time` for anything
            else.
    """
    if value is None:
        return None
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, str):
        text = value.strip()
        try:
            if len(text) == len("2026-01-01") and text.count("-") == 2:
                return datetime.fromisoformat(text).replace(tzinfo=UTC)
            value = datetime.fromisoformat(text)
        except ValueError:
            pass
    if not isinstance(value, datetime):
        raise PydanticCustomError(
            "bad_time", "is not an ISO 8601 time: write it as 2026-01-31T00:00:00Z"
        )
    if value.tzinfo is None:
        raise PydanticCustomError(
            "naive_time", "has no zone: write it with an offset, as 2026-01-31T00:00:00Z"
        )
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise PydanticCustomError("bad_time", "lies outside the calendar") from None


def _as_list(value: Any) -> Any:
    return (
        (value,) if isinstance(value, str | int | float) and not isinstance(value, bool) else value
    )


def _clean(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    # Printable text has blanks as its only white space; most labels take this way, which is five
    # times as fast.
    plain = value.isprintable() and (len(value) <= MAX_BLANK_RUN or "  " not in value)
    return value.strip() if plain else normalise(value).strip()


RecordTime = Annotated[datetime, BeforeValidator(parse_time)]
Label = Annotated[
    str,
    BeforeValidator(_clean),
    StringConstraints(min_length=1, max_length=MAX_NAME_CHARS, pattern=r"^[^\n\t]+$"),
]
"""One line of text that names something."""
Labels = Annotated[tuple[Label, ...], BeforeValidator(_as_list)]
"""A list of labels; a single one may stand alone."""
FreeText = Annotated[str, BeforeValidator(_clean)]


class RecordFields(ImportedContract):
    """What any record may say of its validity and of who may see it. Absent:
    the source's default.
    """

    model_config = ConfigDict(coerce_numbers_to_str=True)

    subject: Label | None = None
    version: Label | None = None
    valid_from: RecordTime | None = None
    valid_until: RecordTime | None = None
    tenant: Label | None = None
    principals: Labels | None = None
    groups: Labels | None = None
    sensitivity: Sensitivity | None = None
    authority: Annotated[int, Field(ge=0, le=100)] | None = None
    trust: Trust | None = None
    supersedes: Labels | None = None

    @model_validator(mode="after")
    def _period_runs_forward(self) -> RecordFields:
        if self.valid_from and self.valid_until and self.valid_until < self.valid_from:
            raise PydanticCustomError(
                "bad_period", "valid_until lies before valid_from: correct one of them"
            )
        return self


NO_FIELDS = RecordFields()

PERMISSION_KEYS = ("tenant", "principals", "groups", "sensitivity")
"""Keys whose loss would widen who may see a record."""

NEAR_MISS_RATIO = 0.85
"""From this `difflib` ratio on a key is a permission key that was mistyped: `sensitivty` 0.95,
`group_by` 0.77."""
MAX_NEAR_MISS_CHARS = 64
"""A longer key is no slip of the pen; comparing it costs time that grows with its square."""


def meant_permission(key: str) -> str | None:
    """Return the permission key that `key` is a variant or a near miss of; None for the exact key
    and for any other.

    Upper case, width, separators, singular for plural and small slips make a variant. Such a key
    would be ignored, and the record would be seen by all whom the source lets in, so whoever reads
    records refuses it.
    """
    key = key.strip()
    return _meant_permission(key) if len(key) <= MAX_NEAR_MISS_CHARS else None


def lost_permission_message(wanted: str) -> str:
    """Say why a key that `meant_permission` knows is refused."""
    return (
        f"a key looks like {wanted} and would be ignored: write it so, "
        "or rename it if it restricts nothing"
    )


@lru_cache(maxsize=4096)
def _meant_permission(key: str) -> str | None:
    if key in RecordFields.model_fields:
        return None
    folded = "".join(
        char for char in unicodedata.normalize("NFKC", key).casefold() if char.isalnum()
    )
    return next((wanted for wanted in PERMISSION_KEYS if _is_near(folded, wanted)), None)


def _is_near(folded: str, wanted: str) -> bool:
    pairs = ((folded, wanted), (_singular(folded), _singular(wanted)))
    if any(
        SequenceMatcher(None, *pair, autojunk=False).ratio() >= NEAR_MISS_RATIO for pair in pairs
    ):
        return True
    # One wrong or two swapped letters of a short key stay below the ratio: `gruops`, `tenent`.
    wrong = sum(left != right for left, right in zip(folded, wanted, strict=False))
    return len(folded) == len(wanted) and (wrong <= 1 or sorted(folded) == sorted(wanted))


def _singular(word: str) -> str:
    return f"{word[:-3]}y" if word.endswith("ies") else word.removesuffix("s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A record that is ready to become an item."""

    found: FoundFile
    kind: ItemKind
    name: str
    title: str
    content: str
    """Normalised."""
    fields: RecordFields = NO_FIELDS
    subject: str | None = None
    """Used where the record names no subject."""
    version: str | None = None
    """Used where the record names no version; None: hash of the content."""
    source_version: str
    """Of the file or record, where none is declared."""
    key_lines: Mapping[str, int] = field(default_factory=dict[str, int], compare=False)
    """On which lines the keys of the record stand, where that is known."""
    line_start: int | None = None
    line_end: int | None = None
    heading_path: tuple[str, ...] = ()
    authority: int | None = None
    """Replaces the source's authority as the ceiling."""
    created_at: datetime | None = None
    observed_at: datetime | None = None
    last_verified_at: datetime | None = None
    confidence: float = 1.0
    depends_on: tuple[str, ...] = ()
    supersedes: tuple[str, ...] = ()
    synonyms: tuple[str, ...] = ()
    page: int | None = None
    url: str | None = None
    content_ref: str | None = None
    media: Media | None = None


def scope_of(fields: RecordFields, origin: Origin) -> Scope:
    """Return who may see the record by its own words; `within_source` bounds them.

    A record that names principals or groups replaces the source's list of both: to name one person
    in a source that is open to `*` restricts the record to that person.
    """
    if fields.tenant is None and fields.principals is None and fields.groups is None:
        return origin.scope
    default = origin.scope
    own = fields.principals is not None or fields.groups is not None
    tenant = fields.tenant or default.tenant
    principals = (fields.principals or ()) if own else default.principals
    groups = (fields.groups or ()) if own else default.groups
    key = (tenant, principals, groups)
    if key not in origin.scopes:
        update = {"tenant": tenant, "principals": principals, "groups": groups}
        origin.scopes[key] = default.model_copy(update=update)
    return origin.scopes[key]


def make_item(draft: Draft, origin: Origin) -> ContextItem:
    """Build the item of a record: its own words first, the source's defaults for the rest, ceilings
    applied.
    """
    fields = draft.fields
    if draft.authority is None:
        authority = origin.clamp_authority(fields.authority)
    else:
        authority = (
            draft.authority if fields.authority is None else min(fields.authority, draft.authority)
        )
    # Every part is checked or made here already; validating it again takes half the time of a large
    # source.
    locator = Locator.model_construct(
        path=draft.found.shown,
        page=draft.page,
        url=draft.url,
        line_start=draft.line_start,
        line_end=draft.line_end,
        heading_path=draft.heading_path,
    )
    provenance = Provenance.model_construct(
        source_type=origin.source.kind.value,
        source_id=origin.name,
        source_version=fields.version or draft.source_version,
        locator=locator,
    )
    item_id = origin.item_id(draft.kind.value, draft.name)
    version = fields.version or draft.version or short_hash(draft.content)
    scope = scope_of(fields, origin)
    if draft.key_lines and (scope is not origin.scope or fields.sensitivity is not None):
        origin.key_lines[item_id, version] = draft.key_lines
    return ContextItem(
        item_id=item_id,
        version=version,
        kind=draft.kind,
        subject=fields.subject or draft.subject,
        title=normalise(draft.title),
        content=draft.content,
        content_ref=draft.content_ref,
        provenance=provenance,
        authority=authority,
        trust=origin.clamp_trust(fields.trust),
        sensitivity=fields.sensitivity or origin.source.sensitivity,
        scope=scope,
        created_at=draft.created_at,
        observed_at=draft.observed_at,
        valid_from=fields.valid_from,
        valid_until=fields.valid_until,
        last_verified_at=draft.last_verified_at,
        confidence=draft.confidence,
        depends_on=draft.depends_on,
        supersedes=draft.supersedes or fields.supersedes or (),
        synonyms=draft.synonyms,
        media=draft.media,
    )


def record_error(
    error: ValidationError,
    found: FoundFile,
    *,
    line: int | None,
    key_lines: Mapping[str, int] | None = None,
    code: FileCode = FileCode.BAD_RECORD,
) -> FileError:
    """Say what is wrong with a record: the key, the rule and the line, never the value."""
    problems = error.errors(include_input=False, include_url=False, include_context=False)
    naive = [problem for problem in problems if problem["type"] == "naive_time"]
    problem = (naive or problems)[0]
    path = [str(part) for part in problem["loc"]]
    key = ".".join(path) or "record"
    at = key_lines.get(path[0], line) if key_lines and path else line
    rest = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return FileError(
        path=found.shown,
        line=at,
        code=FileCode.NAIVE_TIME if naive else code,
        message=f"{key}: {problem['msg']}{rest}",
    )
