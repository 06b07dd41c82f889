"""Stable codes, all in one place. Values never change meaning; new ones may be added."""

from __future__ import annotations

from enum import StrEnum


class ItemKind(StrEnum):
    """What a context item is."""

    POLICY = "policy"
    INSTRUCTION = "instruction"
    TASK = "task"
    STATE = "state"
    HISTORY = "history"
    DOCUMENT = "document"
    MEMORY = "memory"
    OBSERVATION = "observation"
    SKILL = "skill"
    ARTIFACT_REF = "artifact_ref"
    METRIC = "metric"
    GLOSSARY = "glossary"
    SCHEMA = "schema"
    TOOL = "tool"
    CODE = "code"
    WEB = "web"


class SourceKind(StrEnum):
    """What `kind` a `[[sources]]` entry of `ctx.toml` may name."""

    SEMANTIC_REGISTRY = "semantic_registry"
    GLOSSARY = "glossary"
    SCHEMA_METADATA = "schema_metadata"
    MEMORIES = "memories"
    DOCUMENTS = "documents"
    INSTRUCTIONS = "instructions"
    ARTIFACTS = "artifacts"
    TOOLS = "tools"
    SKILLS = "skills"
    CODE = "code"
    WEB = "web"
    SESSION_HISTORY = "session_history"
    GIT = "git"
    SQL = "sql"


class Trust(StrEnum):
    """How far content may be believed; `TRUST_RANK` orders them."""

    SYSTEM_TRUSTED = "system_trusted"
    ENTERPRISE_TRUSTED = "enterprise_trusted"
    USER = "user"
    RETRIEVED_INTERNAL = "retrieved_internal"
    RETRIEVED_EXTERNAL = "retrieved_external"
    TOOL_UNTRUSTED = "tool_untrusted"


TRUST_RANK = {trust: rank for rank, trust in enumerate(reversed(Trust))}
"""Higher is more trusted."""


class Sensitivity(StrEnum):
    """How closely content is held; `SENSITIVITY_RANK` orders them."""

    PUBLIC = "public"
    INTERNAL = "internal"
    CONFIDENTIAL = "confidential"
    RESTRICTED = "restricted"


SENSITIVITY_RANK = {level: rank for rank, level in enumerate(Sensitivity)}
"""Higher is more closely held; an identity sees up to its clearance."""


class WhenToLoad(StrEnum):
    """When a source's items are considered."""

    ALWAYS = "always"
    PREFETCH = "prefetch"
    ON_MATCH = "on_match"
    JUST_IN_TIME = "just_in_time"
    ON_REQUEST = "on_request"


class Rendition(StrEnum):
    """How much of an item is shown."""

    FULL = "full"
    COMPACT = "compact"
    POINTER = "pointer"


class Zone(StrEnum):
    """Whether a section may instruct the model or only inform it."""

    INSTRUCTION = "instruction"
    DATA = "data"


class Exclusion(StrEnum):
    """Why an item version is not in a pack. The order of the first fourteen is the order of the
    rules.
    """

    WRONG_TENANT = "wrong_tenant"
    NOT_PERMITTED = "not_permitted"
    OVER_CLEARANCE = "over_clearance"
    WRONG_ENVIRONMENT = "wrong_environment"
    OUT_OF_SCOPE = "out_of_scope"
    ROLE_DENIED = "role_denied"
    BELOW_TRUST = "below_trust"
    QUARANTINED = "quarantined"
    FORGOTTEN = "forgotten"
    RETIRED = "retired"
    NOT_YET_VALID = "not_yet_valid"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    STALE = "stale"
    DUPLICATE = "duplicate"
    CONFLICT_LOST = "conflict_lost"
    LOW_RANK = "low_rank"
    OVER_BUDGET = "over_budget"
    GATE_REMOVED = "gate_removed"
    NOT_ROUTED = "not_routed"


PERMISSION_CODES = tuple(Exclusion)[:7]
"""Codes of rules that run inside the index query: such items are counted, never named."""


class Lifecycle(StrEnum):
    """States of an item version over its life."""

    CREATED = "created"
    DISCOVERED = "discovered"
    SELECTED = "selected"
    VISIBLE = "visible"
    USED = "used"
    STALE = "stale"
    SUPERSEDED = "superseded"
    RETIRED = "retired"
    RESTORED = "restored"
    QUARANTINED = "quarantined"
    FORGOTTEN = "forgotten"
    COMPRESSED = "compressed"
    EXTERNALIZED = "externalized"
    EVICTED = "evicted"


class GateCheck(StrEnum):
    """The seven preflight checks before a pack leaves."""

    REQUIRED_CONTEXT_PRESENT = "required_context_present"
    STALE_ITEMS = "stale_items"
    CONFLICTING_SOURCES = "conflicting_sources"
    SENSITIVE_SCOPE_OK = "sensitive_scope_ok"
    TOKEN_BUDGET_OK = "token_budget_ok"
    TOOL_RESULT_TOO_LARGE = "tool_result_too_large"
    AUTHORITY_ORDER_VALID = "authority_order_valid"


class FileStatus(StrEnum):
    """What became of a source file in a build."""

    LOADED = "loaded"
    EMPTY = "empty"
    SKIPPED = "skipped"
    FAILED = "failed"


class FileCode(StrEnum):
    """Why a source file, or a line of it, was not loaded."""

    UNREADABLE = "unreadable"
    NOT_UTF8 = "not_utf8"
    TOO_LARGE = "too_large"
    BAD_FRONT_MATTER = "bad_front_matter"
    BAD_JSON = "bad_json"
    BAD_YAML = "bad_yaml"
    BAD_RECORD = "bad_record"
    NAIVE_TIME = "naive_time"
    DUPLICATE_ID = "duplicate_id"
    VERSION_REUSED = "version_reused"
    UNSUPPORTED_TYPE = "unsupported_type"
    OUTSIDE_ROOT = "outside_root"
    MISSING = "missing"
    SOURCE_SHRANK = "source_shrank"
    MISSING_SCOPE = "missing_scope"
    EMPTY = "empty"
    UNKNOWN_NAME = "unknown_name"
    """A definition names an input that nothing of its source defines; it is loaded."""
    NOT_REPLACED = "not_replaced"
    """An entry of `supersedes` replaces nothing; the item that has it is loaded."""
    WRONG_TENANT = "wrong_tenant"
    WIDER_THAN_SOURCE = "wider_than_source"
    HIDDEN_CHARACTERS = "hidden_characters"
    ENCRYPTED = "encrypted"
    BAD_PDF = "bad_pdf"
    BAD_URL = "bad_url"
    FETCH_REFUSED = "fetch_refused"
    FETCH_FAILED = "fetch_failed"


LOADED_ALL_THE_SAME = frozenset(
    {
        FileCode.MISSING_SCOPE,
        FileCode.WIDER_THAN_SOURCE,
        FileCode.HIDDEN_CHARACTERS,
        FileCode.UNKNOWN_NAME,
        FileCode.NOT_REPLACED,
    }
)
"""Findings about what was loaded: nothing of its file is missing for them."""
