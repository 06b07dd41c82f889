"""The settings of a context project: `ctx.toml`, `CTX_*` variables and flags as one frozen
model.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from ctx_pipeline.config.calendar import CalendarSection, Section
from ctx_pipeline.config.layers import (
    Layer,
    Problem,
    dotted,
    nearest,
    not_accepted,
    problems_of,
    raise_problems,
    read_environ,
    read_flags,
    read_toml,
)
from ctx_pipeline.config.policies import unknown_names, with_policy_files
from ctx_pipeline.config.source_rules import duplicates, source_problems
from ctx_pipeline.contracts import (
    ContextPolicy,
    Identity,
    ModelProfile,
    PolicyRule,
    Sensitivity,
    SourceKind,
    Trust,
    WhenToLoad,
)
from ctx_pipeline.contracts.base import Text
from ctx_pipeline.errors import ConfigError, InvalidRequest
from ctx_pipeline.text import canonical_json

CONFIG_NAME = "ctx.toml"

DEFAULT_AUTHORITY: dict[SourceKind, int] = {
    SourceKind.SEMANTIC_REGISTRY: 100,
    SourceKind.GLOSSARY: 95,
    SourceKind.INSTRUCTIONS: 95,
    SourceKind.SCHEMA_METADATA: 90,
    SourceKind.SQL: 90,
    SourceKind.TOOLS: 80,
    SourceKind.SKILLS: 70,
    SourceKind.MEMORIES: 40,
    SourceKind.DOCUMENTS: 60,
    SourceKind.ARTIFACTS: 60,
    SourceKind.CODE: 60,
    SourceKind.GIT: 60,
    SourceKind.SESSION_HISTORY: 30,
    SourceKind.WEB: 20,
}
"""The authority ladder: registry 100 > database metadata 90 > verified memory 70 > documents 60 >
unverified memory 40 > session history 30 > web 20. A memory with `last_verified_at` is lifted to
`VERIFIED_MEMORY_AUTHORITY`."""

VERIFIED_MEMORY_AUTHORITY = 70

DEFAULT_MODEL = "gpt-5"
DEFAULT_ENCODINGS = ("o200k_base", "cl100k_base")
DEFAULT_ARTIFACTS_KEPT = 5
DEFAULT_MAX_SHRINK = 0.5
"""A feed that is half gone is more often broken than half withdrawn."""
DEFAULT_RUNS_KEPT = 50
"""One run takes 0.2 to 1 MB, and Dagster itself keeps them all."""
MIN_FRESHNESS = timedelta(seconds=60)
"""Dagster refuses shorter freshness windows."""
MAX_FRESHNESS = timedelta(days=36_500)

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

_DURATION = re.compile(r"([0-9]{1,9})([smhd])")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


Name = Annotated[Text, Field(min_length=1, max_length=512)]


def _duration(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("should be a duration such as '90m', '24h' or '7d'")
    seconds = timedelta(**{_UNITS[match.group(2)]: 1}).total_seconds() * int(match.group(1))
    if not MIN_FRESHNESS.total_seconds() <= seconds <= MAX_FRESHNESS.total_seconds():
        raise ValueError("should be a duration from 60s to 36500d")
    return timedelta(seconds=seconds)


def _day(value: Any) -> Any:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        if isinstance(value, str) and _DAY.fullmatch(value):
            return date.fromisoformat(value)
    except ValueError:
        pass
    raise not_accepted("should be a day", "write year, month and day, as 2026-11-30")


Day = Annotated[date, BeforeValidator(_day)]
Duration = Annotated[timedelta, BeforeValidator(_duration)]


def _webhook(value: SecretStr) -> SecretStr:
    _https_or_own(value.get_secret_value())
    return value


def _https_or_own(value: str) -> str:
    parts = urlsplit(value)
    if not parts.hostname or (
        parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK)
    ):
        raise ValueError("should be an https:// address, or http:// of this machine")
    return value


class Freshness(Section):
    """How old a source may get: `freshness = "24h"` is the fail window, warn at three quarters of
    it.
    """

    fail: Duration
    warn: Duration

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"fail": value}
        if isinstance(value, dict) and "warn" not in value and "fail" in value:
            window = cast("dict[str, Any]", value)
            fail = _duration(window["fail"])
            if fail * 3 / 4 < MIN_FRESHNESS:
                raise ValueError(
                    "warns at three quarters, which should be 60s or more: write at least '80s'"
                )
            return {**window, "fail": fail, "warn": fail * 3 / 4}
        return cast("Any", value)

    @model_validator(mode="after")
    def _warn_first(self) -> Freshness:
        if self.warn >= self.fail:
            raise ValueError("warn should be shorter than fail")
        return self


class SourceConfig(Section):
    """One `[[sources]]` entry."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$")]
    kind: SourceKind
    path: Annotated[str, Field(min_length=1)] | None = None
    """File, folder or glob, relative to `ctx.toml`."""
    url: Annotated[str | None, Field(min_length=1, repr=False)] = None
    """Shown without its password and query."""
    authority: Annotated[int, Field(ge=0, le=100)] | None = None
    trust: Trust | None = None
    sensitivity: Sensitivity | None = Sensitivity.INTERNAL
    tenant: Name | None = None
    groups: tuple[Name, ...] = ()
    principals: tuple[Name, ...] = ()
    may_widen: bool = False
    tenants: tuple[Name, ...] = ()
    environment: Name | None = None
    task_types: tuple[Name, ...] = ()
    agent_visibility: tuple[Name, ...] = ()
    freshness: Freshness | None = None
    when_to_load: WhenToLoad | None = None
    owner: Name | None = None
    max_file_bytes: Annotated[int, Field(ge=1)] = 32 * 1024 * 1024
    max_shrink: Annotated[float, Field(ge=0.0, le=1.0)] = DEFAULT_MAX_SHRINK
    """Share of its items that a source may lose from one reading to the next; above it a person has
    to confirm. A document counts once, an empty source always asks, and 1 never does."""
    allow_private: bool = False
    """Web sources: also read pages of private, loopback and carrier-grade addresses, and of any
    port."""
    phases: tuple[Name, ...] = ()
    """Tools sources: phases in which tools that declare none are shown. Empty: every phase."""


class ProjectSection(Section):
    """`[project]`: what this project is."""

    name: Name = "context"
    tenant: Name | None = None
    """Scope of a source that names none. None: such a source is visible to nobody."""
    default_model: Name = DEFAULT_MODEL


class IdentitySection(Section):
    """`[identity]`: who the command line is, unless flags say otherwise."""

    principal: Name
    tenant: Name | None = None
    """None: the project's tenant."""
    groups: tuple[Name, ...] = ()
    clearance: Sensitivity = Sensitivity.INTERNAL
    environment: Name | None = None
    purpose: Name | None = None


class EmbedderSection(Section):
    """`[embedder]`: what turns text into vectors."""

    model: Name = "default"
    """`default`, or any sentence-transformers name or path."""


class EngineSection(Section):
    """`[engine]`: what the build prepares for the engine, and what the engine uses."""

    encodings: Annotated[tuple[Name, ...], Field(min_length=1)] = DEFAULT_ENCODINGS
    """tiktoken vocabularies that token counts are stored for."""
    reranker: Name | None = None
    """A cross-encoder of sentence-transformers, by name or path, that looks again at the best 24
    candidates; a tenth of a second or more a call. Needs the `models` extra. None: nothing does."""


class LedgerSection(Section):
    """`[ledger]`: where snapshots, traces and events are kept."""

    url: SecretStr | None = None
    """SQLAlchemy URL. None: SQLite in `.ctx/state/`."""


class DagsterSection(Section):
    """`[dagster]`: where runs, schedules and event logs are kept."""

    url: SecretStr | None = None
    """PostgreSQL URL of a database for this project alone. None: SQLite in `.ctx/dagster/`."""


class ArtifactSection(Section):
    """`[artifact]`: the serving artifacts."""

    keep: Annotated[int, Field(ge=1, le=1_000)] = DEFAULT_ARTIFACTS_KEPT
    """How many published artifacts stay for readers and rollback."""


class RetentionSection(Section):
    """`[retention]`: how long what only people look back at is kept."""

    snapshots: Duration | None = None
    """Snapshots of calls older than this are deleted. None: they are kept."""
    runs: Annotated[int, Field(ge=1, le=100_000)] = DEFAULT_RUNS_KEPT
    """Finished Dagster runs that stay in the project's own instance, besides those that built what
    there is now."""


class AlertsSection(Section):
    """`[alerts]`: who is told when a run fails, besides `.ctx/alerts.jsonl`."""

    webhook: Annotated[SecretStr, AfterValidator(_webhook)] | None = None
    """Address that gets each alert as JSON. None: nobody is called."""


class UsageSection(Section):
    """`[usage]`: the daily roll-up of what calls were shown."""

    since: Day | None = None
    """First day that can be rolled up. None: the day of the oldest snapshot."""


class PolicySection(ContextPolicy):
    """`[policy]`: fields of the context policy that differ from the default, from the profile, or
    from the file.
    """

    profile: Annotated[str, Field(min_length=1)] | None = None
    """Shipped policy to begin with: `coding`, `data`, `support` or `research`. What a file or this
    table says wins."""
    path: Annotated[str, Field(min_length=1)] | None = None
    """TOML file of policy fields, relative to `ctx.toml`; keys given here win over it."""


class PolicyServiceSection(Section):
    """`[policy_service]`: who else decides about permission; it can only take away."""

    kind: Literal["builtin", "cedar", "http"] = "builtin"
    """`builtin`: nobody; `cedar`: Cedar policies in `path`; `http`: a service at `url`."""
    path: Annotated[str, Field(min_length=1)] | None = None
    """File or folder of `.cedar` policies, relative to `ctx.toml`."""
    url: Annotated[str, AfterValidator(_https_or_own)] | None = None
    """Address that is asked; https, or http of this machine."""
    token: SecretStr | None = None
    """Sent as a bearer token."""
    timeout_ms: Annotated[int, Field(ge=1, le=60_000)] = 500
    """Longest wait for an answer, in milliseconds; after it everything is denied."""
    mode: Literal["strict", "cached"] = "strict"
    """`strict`: every call asks; `cached`: an answer holds for `cache_seconds`."""
    cache_seconds: Annotated[int, Field(ge=1, le=10)] = 10
    """How long a revoked grant may go on in `cached` mode."""

    @model_validator(mode="after")
    def _reachable(self) -> PolicyServiceSection:
        if self.kind == "cedar" and self.path is None:
            raise ValueError("kind 'cedar' needs path")
        if self.kind == "http" and self.url is None:
            raise ValueError("kind 'http' needs url")
        return self


class ProjectConfig(Section):
    """Everything `ctx.toml` may say."""

    project: ProjectSection = ProjectSection()
    identity: IdentitySection | None = None
    embedder: EmbedderSection = EmbedderSection()
    sources: tuple[SourceConfig, ...] = ()
    policy: PolicySection = PolicySection()
    policy_service: PolicyServiceSection = PolicyServiceSection()
    engine: EngineSection = EngineSection()
    calendar: CalendarSection = CalendarSection()
    ledger: LedgerSection = LedgerSection()
    dagster: DagsterSection = DagsterSection()
    artifact: ArtifactSection = ArtifactSection()
    retention: RetentionSection = RetentionSection()
    alerts: AlertsSection = AlertsSection()
    usage: UsageSection = UsageSection()
    models: tuple[ModelProfile, ...] = ()

    def identity_contract(self) -> Identity | None:
        """Return who the command line is; None when `[identity]` is absent."""
        if self.identity is None:
            return None
        tenant = self.identity.tenant or self.project.tenant
        if tenant is None:
            return None
        return Identity.model_validate({**self.identity.model_dump(), "tenant": tenant})

    def policy_contract(self) -> ContextPolicy:
        """Return the policy that packs are made by."""
        return ContextPolicy.model_validate(self.policy.model_dump(exclude={"path", "profile"}))


class SettingRow(NamedTuple):
    """One setting as it is shown."""

    key: str
    value: str
    """Secrets are shown as `****`."""
    origin: str
    """`default`, `ctx.toml:LINE`, `env CTX_...` or `flag`."""


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A checked configuration, the folder it belongs to, and where each setting came from."""

    config: ProjectConfig
    home: Path
    _layer: Layer

    @property
    def embedder_model(self) -> str:
        """The embedder's name; a path that exists relative to `ctx.toml` becomes absolute."""
        return self._local(self.config.embedder.model)

    @property
    def reranker_model(self) -> str | None:
        """The reranker's name, in the same way; None for none."""
        named = self.config.engine.reranker
        return None if named is None else self._local(named)

    def _local(self, model: str) -> str:
        local = self.home / model
        return str(local) if "/" in model and local.is_dir() else model

    def rows(self) -> list[SettingRow]:
        """Return every setting in the order of `ProjectConfig`; empty keys of sources and models
        are left out.
        """
        return [
            SettingRow(dotted(path, self._layer.values), _shown(value), self._origin(path))
            for path, value in _settings(self.config)
        ]

    def origin(self, key: str) -> str:
        """Return where a setting came from, for example `ctx.toml:4` for `sources.handbook.path`.

        Raises:
            ConfigError: no such setting (`unknown_key`).
        """
        rows = {row.key: row.origin for row in self.rows()}
        if key not in rows:
            near = nearest(key, list(rows))
            raise ConfigError(
                f"unknown key {key!r}",
                fix=f"did you mean {near!r}?" if near else "",
                code="unknown_key",
            )
        return rows[key]

    @property
    def layer(self) -> Layer:
        """The values as they were written, and where."""
        return self._layer

    def _origin(self, path: tuple[str | int, ...]) -> str:
        origins = self._layer.origins
        inside = (origin for key, origin in origins.items() if key[: len(path)] == path)
        return origins.get(path) or next(inside, "default")


def _settings(
    config: BaseModel, prefix: tuple[str | int, ...] = ()
) -> list[tuple[tuple[str | int, ...], Any]]:
    found: list[tuple[tuple[str | int, ...], Any]] = []
    for key in type(config).model_fields:
        value: Any = getattr(config, key)
        path = (*prefix, key)
        if key == "schema_version" or (
            value is None and any(isinstance(part, int) for part in prefix)
        ):
            continue
        if key in ("sources", "models") and not prefix:
            for index, entry in enumerate(cast("tuple[BaseModel, ...]", value)):
                found += _settings(entry, (*path, index))
        elif isinstance(value, BaseModel) and not isinstance(value, Freshness):
            found += _settings(value, path)
        else:
            found.append((path, value))
    return found


def _shown(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case timedelta():
            return _seconds(value)
        case tuple():
            return ", ".join(_shown(entry) for entry in cast("tuple[Any, ...]", value)) or "none"
        case BaseModel():
            return _shown_model(value)
        case dict():
            return ", ".join(
                f"{key} {_shown(entry)}" for key, entry in cast("dict[str, Any]", value).items()
            )
        case SecretStr():
            return "****"
        case str():
            return mask_url(str(value))
        case _:
            return str(value)


def _shown_model(value: BaseModel) -> str:
    match value:
        case Freshness():
            return f"warn {_seconds(value.warn)}, fail {_seconds(value.fail)}"
        case PolicyRule():
            return value.label
        case _:
            return canonical_json(value.model_dump(mode="json", exclude_none=True))


def _seconds(value: timedelta) -> str:
    return f"{round(value.total_seconds())}s"


def mask_url(value: str) -> str:
    """Return text with the user part and the query of a URL in it replaced by `****`."""
    masked = re.sub(r"(\w://)[^/?#]*@", r"\1****@", value)
    return re.sub(r"(\w://[^?#]*[?#]).*", r"\1****", masked, flags=re.DOTALL)


def find_home(explicit: str | None) -> Path:
    """Return the project's folder: `--home`, else `CTX_HOME`, else the nearest parent with
    `ctx.toml`, else here.
    """
    named = explicit or os.environ.get("CTX_HOME")
    if named:
        return Path(named).expanduser().resolve()
    here = Path.cwd()
    return next(
        (folder for folder in (here, *here.parents) if (folder / CONFIG_NAME).is_file()), here
    )


def load_config(home: Path, *, overrides: Mapping[str, object] | None = None) -> LoadedConfig:
    """Read and check the settings of the project in `home`: flags over `CTX_*` variables over
    `ctx.toml` over defaults.

    `overrides` are flags by dotted key (`{"project.default_model": "gpt-4o"}`); None means that a
    flag was not given.

    Raises: ConfigError: there is no `ctx.toml` (`no_project`), it cannot be read
        (`unreadable_config`, `invalid_toml`), or
            a key is unknown or its value is not accepted (`unknown_key`, `invalid_value`,
            `duplicate_source`, `duplicate_model`, `unknown_model`, and what `source_rules` says of
            sources); `where` names the file and line, the variable or the flag of the first, and
            the message those of all others.
    """
    home = home.expanduser().resolve()
    path = home / CONFIG_NAME
    if not path.is_file():
        raise ConfigError(
            f"there is no {CONFIG_NAME} in this folder",
            where=str(home),
            fix=f"ctx init {shlex.quote(str(home))}",
            code="no_project",
        )
    layer = read_toml(path, label=CONFIG_NAME)
    layer = read_environ(ProjectConfig).over(layer)
    layer = with_policy_files(read_flags(overrides).over(layer), home)
    known = [*source_problems(layer), *duplicates(layer)]
    try:
        config = ProjectConfig.model_validate(layer.values)
    except ValidationError as invalid:
        raise_problems([*problems_of(invalid, ProjectConfig, layer), *known])
        raise
    raise_problems([*known, *_contradictions(config, layer)])
    return LoadedConfig(config, home, layer)


def _contradictions(config: ProjectConfig, layer: Layer) -> list[Problem]:
    from ctx_pipeline.config.profiles import model_profile

    found: list[Problem] = []
    if config.identity and not (config.identity.tenant or config.project.tenant):
        where = layer.origin(("identity",)) or CONFIG_NAME
        found.append(
            Problem(where, "'identity.tenant' is missing and the project has none", "add tenant")
        )
    found += unknown_names(config.policy, [source.name for source in config.sources], layer)
    try:
        profiles = [model_profile(config.project.default_model, config.models), *config.models]
    except InvalidRequest as unknown:
        where = layer.origin(("project", "default_model")) or "default"
        return [*found, Problem(where, unknown.message, unknown.fix, unknown.stable_code)]
    for profile in profiles:
        if profile.encoding not in config.engine.encodings:
            where = layer.origin(("engine", "encodings")) or CONFIG_NAME
            message = (
                f"model {profile.model_id!r} counts with {profile.encoding!r}, which "
                "'engine.encodings' leaves out"
            )
            found.append(Problem(where, message, f"add {profile.encoding!r}"))
    return found
