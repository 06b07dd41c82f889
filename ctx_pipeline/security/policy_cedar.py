"""Cedar policies of the project as a policy service: read anew for each question, validated, and
denied by default.

An entity `User` stands for the viewer, with its groups as parents, and a `Label` for each label;
the action is `read`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ctx_pipeline.contracts.codes import SENSITIVITY_RANK, TRUST_RANK, Sensitivity, Trust
from ctx_pipeline.errors import Unavailable
from ctx_pipeline.security.policy_service import (
    DecisionBatch,
    Decisions,
    PolicyServiceError,
    label_facts,
    viewer_facts,
)
from ctx_pipeline.security.visibility import ScopeLabel, Viewer
from ctx_pipeline.text import short_hash

if TYPE_CHECKING:
    import cedarpy

MAX_FILE_BYTES = 4 * 1024 * 1024
"""Far above any set of policies that people keep in files."""
ENTITIES = "entities.json"
SCHEMA = "schema.cedarschema"
DEFAULT_SCHEMA = """\
entity Group in [Group];
entity User in [Group] = {
  tenant: String, groups: Set<String>, clearance: String, clearance_level: Long,
  environment?: String, purpose?: String
};
entity Label = {
  tenant: String, principals: Set<String>, groups: Set<String>,
  sensitivity: String, sensitivity_level: Long,
  environment?: String, task_types: Set<String>, agent_visibility: Set<String>,
  trust: String, trust_level: Long
};
action read appliesTo {
  principal: [User], resource: [Label], context: { task_type?: String, agent_role?: String }
};
"""
"""What policies are validated against where the folder has no `schema.cedarschema`."""

Entity = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Files:
    """What the project's files say."""

    version: str
    policies: str
    schema: str
    entities: str | None


@dataclass(frozen=True, slots=True)
class _Parsed:
    """Files that are in order."""

    version: str
    policies: cedarpy.PolicySet
    schema: cedarpy.Schema
    entities: Mapping[str, Entity] | None
    """The project's own entities by `Type::id`; None where it names none."""


class CedarService:
    """The policies below a path: one `.cedar` file, or a folder of them with an optional schema and
    entities.
    """

    name = "cedar"

    def __init__(self, path: Path) -> None:
        try:
            import cedarpy as library
        except ImportError as missing:
            raise Unavailable(
                "the Cedar engine is not installed",
                where="[policy_service]",
                fix="pip install 'ctx-pipeline[cedar]'",
            ) from missing
        # Its own types are partly unknown.
        self._cedar: Any = library
        self._path = path
        self._parsed: _Parsed | None = None
        self._lock = threading.Lock()

    def version(self) -> str:
        """Return the hash of the files as they are now."""
        return _read(self._path).version

    def decide(self, batch: DecisionBatch) -> Decisions:
        """Evaluate every label. Only `Allow` without any error counts, and only for entities that
        are known.
        """
        parsed = self._current()
        entities = _entities(batch, parsed.entities)
        action, user = (
            {"type": "Action", "id": "read"},
            {"type": "User", "id": batch.viewer.principal},
        )
        given = {"task_type": batch.viewer.task_type, "agent_role": batch.viewer.agent_role}
        context = {key: value for key, value in given.items() if value is not None}
        requests = [
            {
                "principal": user,
                "action": action,
                "resource": _label_uid(number),
                "context": context,
            }
            for number in range(len(batch.labels))
        ]
        try:
            held = self._cedar.Entities.from_json_str(json.dumps(entities), parsed.schema)
            results = self._cedar.is_authorized_batch(
                requests, parsed.policies, held, parsed.schema
            )
        except ValueError:
            raise PolicyServiceError("invalid_entities") from None
        allowed = tuple(result.allowed and not result.diagnostics.errors for result in results)
        return Decisions(allowed, parsed.version)

    def close(self) -> None:
        """Do nothing: only memory is held."""

    def _current(self) -> _Parsed:
        files = _read(self._path)
        with self._lock:
            if self._parsed is None or self._parsed.version != files.version:
                self._parsed = self._parse(files)
            return self._parsed

    def _parse(self, files: _Files) -> _Parsed:
        cedar = self._cedar
        try:
            schema = cedar.Schema.from_str(files.schema)
            policies = cedar.PolicySet.from_str(files.policies)
        except ValueError:
            raise PolicyServiceError("invalid_policy") from None
        if not cedar.validate_policies(files.policies, schema).validation_passed:
            raise PolicyServiceError("invalid_policy")
        return _Parsed(files.version, policies, schema, _own_entities(files.entities))


def _read(path: Path) -> _Files:
    # Read each time: a revoked grant has to count for the next pack, and the time of a file is not
    # exact enough.
    try:
        names = sorted(path.glob("*.cedar")) if path.is_dir() else [path]
        policies = "\n".join(_text(name) for name in names)
        schema = _optional(path / SCHEMA) or DEFAULT_SCHEMA
        entities = _optional(path / ENTITIES)
    except (OSError, UnicodeDecodeError):
        raise PolicyServiceError("unreadable_policy") from None
    if not policies.strip():
        raise PolicyServiceError("no_policy")
    return _Files(
        short_hash(json.dumps([policies, schema, entities]), 16), policies, schema, entities
    )


def _text(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise PolicyServiceError("policy_too_large")
    return content.decode("utf-8-sig")


def _optional(path: Path) -> str | None:
    return _text(path) if path.is_file() else None


def _own_entities(text: str | None) -> dict[str, Entity] | None:
    if text is None:
        return None
    try:
        entries = cast("list[Entity]", json.loads(text))
        return {_key(entry["uid"]): entry for entry in entries}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise PolicyServiceError("invalid_entities") from None


def _key(uid: Mapping[str, str]) -> str:
    return f"{uid['type']}::{uid['id']}"


def _entities(batch: DecisionBatch, own: Mapping[str, Entity] | None) -> Sequence[Entity]:
    """Return every entity of one question.

    Where the project names its entities, a user that is not among them is unknown, and Cedar would
    let an unknown one pass a policy that names nobody.
    """
    groups = sorted(batch.viewer.groups)
    user: Entity = _user(batch.viewer, groups)
    found: dict[str, Entity] = {
        _key(uid): {"uid": uid, "attrs": {}, "parents": []} for uid in map(_group_uid, groups)
    }
    key = _key(user["uid"])
    if own is not None:
        if key not in own:
            raise PolicyServiceError("unknown_entity")
        user = _joined(own[key], user)
        found |= {name: entry for name, entry in own.items() if name != key}
    labels = [_label(number, label) for number, label in enumerate(batch.labels)]
    return [*found.values(), user, *labels]


def _joined(own: Entity, made: Entity) -> Entity:
    """Return the project's user with what the credential says of it, which wins."""
    attributes: Entity = {**(own.get("attrs") or {}), **made["attrs"]}
    parents = {_key(uid): uid for uid in (*(own.get("parents") or ()), *made["parents"])}
    return {"uid": made["uid"], "attrs": attributes, "parents": list(parents.values())}


def _user(viewer: Viewer, groups: list[str]) -> Entity:
    told = viewer_facts(viewer)
    names = ("tenant", "groups", "clearance", "environment", "purpose")
    attributes: Entity = {name: told[name] for name in names if told[name] is not None}
    attributes["clearance_level"] = SENSITIVITY_RANK[viewer.clearance]
    return {
        "uid": {"type": "User", "id": viewer.principal},
        "attrs": attributes,
        "parents": [_group_uid(group) for group in groups],
    }


def _group_uid(group: str) -> dict[str, str]:
    return {"type": "Group", "id": group}


def _label_uid(number: int) -> dict[str, str]:
    return {"type": "Label", "id": str(number)}


def _label(number: int, label: ScopeLabel) -> Entity:
    attributes: Entity = {
        name: value for name, value in label_facts(label).items() if value is not None
    }
    if label.sensitivity is not None:
        attributes["sensitivity_level"] = SENSITIVITY_RANK[Sensitivity(label.sensitivity)]
    attributes["trust_level"] = TRUST_RANK[Trust(label.trust)]
    return {"uid": _label_uid(number), "attrs": attributes, "parents": []}
