"""Settings come from flags, environment and file in that order, and every
mistake names its place.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ctx_pipeline.config.settings import (
    DEFAULT_AUTHORITY,
    Freshness,
    LoadedConfig,
    ProjectConfig,
    find_home,
    load_config,
    mask_url,
)
from ctx_pipeline.contracts import ContextPolicy, Identity, Sensitivity, SourceKind
from ctx_pipeline.errors import ConfigError

BASIC = """\
[project]
name = "shop"
tenant = "acme"
default_model = "gpt-5"

[identity]
principal = "ana"
groups = ["analysts"]
clearance = "confidential"

[embedder]
model = "default"

[[sources]]
name = "handbook"
kind = "documents"
path = "documents"
freshness = "24h"

[[sources]]
name = "notes"
kind = "memories"
path = "memories"
"""

Load = Callable[..., LoadedConfig]


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("CTX_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def _load(text: str | bytes, **overrides: object) -> LoadedConfig:
        content = text if isinstance(text, bytes) else text.encode("utf-8")
        (tmp_path / "ctx.toml").write_bytes(content)
        flags = {key.replace("__", "."): value for key, value in overrides.items()}
        return load_config(tmp_path, overrides=flags)

    return _load


def _refusal(load: Load, text: str | bytes, **overrides: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(text, **overrides)
    return caught.value


def test_a_project_is_read_from_its_file(load: Load, tmp_path: Path):
    loaded = load(BASIC)
    assert loaded.home == tmp_path.resolve()
    assert (loaded.config.project.name, loaded.config.project.tenant) == ("shop", "acme")
    assert [source.name for source in loaded.config.sources] == ["handbook", "notes"]
    assert loaded.config.sources[0].freshness == Freshness(
        fail=timedelta(hours=24), warn=timedelta(hours=18)
    )


def test_an_empty_file_gives_the_defaults(load: Load):
    config = load("").config
    assert config == ProjectConfig()
    assert config.engine.encodings == ("o200k_base", "cl100k_base")
    assert config.artifact.keep == 5
    assert config.embedder.model == "default"
    assert config.identity_contract() is None
    assert config.policy_contract() == ContextPolicy()


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(
    load: Load, monkeypatch: pytest.MonkeyPatch
):
    key = "project.default_model"
    assert (load("").config.project.default_model, load("").origin(key)) == ("gpt-5", "default")
    text = '[project]\ndefault_model = "gpt-4o"\n'
    assert (load(text).config.project.default_model, load(text).origin(key)) == (
        "gpt-4o",
        "ctx.toml:2",
    )
    monkeypatch.setenv("CTX_PROJECT__DEFAULT_MODEL", "o3")
    loaded = load(text)
    assert (loaded.config.project.default_model, loaded.origin(key)) == (
        "o3",
        "env CTX_PROJECT__DEFAULT_MODEL",
    )
    loaded = load(text, project__default_model="gpt-4")
    assert (loaded.config.project.default_model, loaded.origin(key)) == ("gpt-4", "flag")


def test_a_flag_that_was_not_given_changes_nothing(load: Load):
    assert load(BASIC, project__name=None).origin("project.name") == "ctx.toml:2"


def test_a_table_from_the_environment_is_merged_key_by_key(
    load: Load, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CTX_IDENTITY", '{"clearance": "public"}')
    loaded = load(BASIC)
    assert loaded.config.identity_contract() == Identity(
        principal="ana", tenant="acme", groups=("analysts",), clearance=Sensitivity.PUBLIC
    )
    assert loaded.origin("identity.clearance") == "env CTX_IDENTITY"
    assert loaded.origin("identity.principal") == "ctx.toml:7"


@pytest.mark.parametrize(
    "written", ["finance,分析师", '["finance", "分析师"]', " finance , 分析师 "]
)
def test_a_list_in_the_environment_is_json_or_commas(
    written: str, load: Load, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CTX_IDENTITY__GROUPS", written)
    identity = load(BASIC).config.identity_contract()
    assert identity is not None
    assert identity.groups == ("finance", "分析师")


def test_an_empty_list_in_the_environment_takes_the_groups_away(
    load: Load, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CTX_IDENTITY__GROUPS", "")
    identity = load(BASIC).config.identity_contract()
    assert identity is not None
    assert identity.groups == ()


def test_sources_from_the_environment_replace_those_of_the_file(
    load: Load, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CTX_SOURCES", '[{"name": "one", "kind": "documents", "path": "d"}]')
    loaded = load(BASIC)
    assert [source.name for source in loaded.config.sources] == ["one"]
    assert loaded.origin("sources.one.path") == "env CTX_SOURCES"
    assert loaded.origin("sources.one.groups") == "default"


@pytest.mark.parametrize("name", ["CTX_HOME", "CTX_CORPORA", "CTX_DEBUG", "CTX_REQUIRE_POSTGRES"])
def test_variables_that_others_read_are_no_settings(
    name: str, load: Load, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(name, "/elsewhere")
    assert load(BASIC).config.project.name == "shop"


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "near"),
    [
        ('tenant = "acme"', 'tennant = "acme"', 3, "project.tennant", "tenant"),
        ("[identity]", "[identitiy]", 6, "identitiy", "identity"),
        ('path = "documents"', 'pth = "documents"', 17, "sources.handbook.pth", "path"),
        (
            'freshness = "24h"',
            'freshness = {wran = "12h", fail = "24h"}',
            18,
            "sources.handbook.freshness.wran",
            "warn",
        ),
        (
            "[embedder]",
            "[policy.weights]\nfreshnes = 1\n[embedder]",
            12,
            "policy.weights.freshnes",
            "freshness",
        ),
        (
            "[embedder]",
            "[policy.shares]\nhistori = 0.1\n[embedder]",
            12,
            "policy.shares.histori",
            "history",
        ),
    ],
)
def test_an_unknown_key_names_its_line_and_the_nearest_known_one(
    old: str, new: str, line: int, key: str, near: str, load: Load
):
    error = _refusal(load, BASIC.replace(old, new))
    assert error.stable_code == "unknown_key"
    assert error.where == f"ctx.toml:{line}"
    assert repr(key) in error.message
    assert error.fix == f"did you mean {near!r}?"


def test_an_unknown_key_like_no_other_gets_the_list_of_known_ones(load: Load):
    assert "default_model" in _refusal(load, "[project]\nzzz = 1\n").fix


@pytest.mark.parametrize(
    ("variable", "near"),
    [
        ("CTX_PROJEKT__NAME", "project"),
        ("CTX_PROJECT__NMAE", "name"),
        ("CTX_EMBEDER__MODEL", "embedder"),
    ],
)
def test_an_unknown_variable_is_an_error_too(
    variable: str, near: str, load: Load, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(variable, "x")
    error = _refusal(load, BASIC)
    assert (error.stable_code, error.where, error.fix) == (
        "unknown_key",
        f"env {variable}",
        f"did you mean {near!r}?",
    )


def test_an_unknown_flag_is_an_error_too(load: Load):
    error = _refusal(load, BASIC, project__nmae="x")
    assert (error.stable_code, error.where) == ("unknown_key", "flag")


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "accepted"),
    [
        ('kind = "memories"', 'kind = "memory"', 22, "sources.notes.kind", "'session_history'"),
        (
            'clearance = "confidential"',
            'clearance = "top"',
            9,
            "identity.clearance",
            "'restricted'",
        ),
        (
            'path = "memories"',
            'path = "memories"\nauthority = 101',
            24,
            "sources.notes.authority",
            "100",
        ),
        ('name = "handbook"', 'name = "hand book"', 15, "name", "pattern"),
        ('groups = ["analysts"]', 'groups = "analysts"', 8, "identity.groups", "list"),
        (
            'freshness = "24h"',
            'freshness = "1 day"',
            18,
            "sources.handbook.freshness",
            "'90m', '24h' or '7d'",
        ),
        ('freshness = "24h"', 'freshness = "30s"', 18, "sources.handbook.freshness", "60s"),
        ('freshness = "24h"', 'freshness = "60s"', 18, "sources.handbook.freshness", "80s"),
        (
            'freshness = "24h"',
            'freshness = {warn = "2d", fail = "24h"}',
            18,
            "freshness",
            "shorter than fail",
        ),
        (
            'freshness = "24h"',
            'freshness = {warn = "9s", fail = "24h"}',
            18,
            "freshness.warn",
            "60s",
        ),
        ('freshness = "24h"', 'freshness = {warn = "12h"}', 18, "freshness.fail", "missing"),
        ('path = "documents"', "", 14, "sources.handbook", "path"),
        ("[embedder]", "[artifact]\nkeep = 0\n[embedder]", 12, "artifact.keep", "1"),
        ("[embedder]", "[engine]\nencodings = []\n[embedder]", 12, "engine.encodings", "1 item"),
    ],
)
def test_an_invalid_value_names_its_line_its_key_and_what_is_accepted(
    old: str, new: str, line: int, key: str, accepted: str, load: Load
):
    error = _refusal(load, BASIC.replace(old, new))
    assert error.stable_code == "invalid_value"
    assert error.where == f"ctx.toml:{line}"
    assert key in error.message
    assert accepted in error.message


@pytest.mark.parametrize(
    "value", ['"yesterday"', '"昨天"', '"20261130"', "2026-11-30T09:00:00Z", "1", '"2026-13-45"']
)
def test_what_is_no_day_is_refused_with_how_to_write_one(load: Load, value: str):
    error = _refusal(load, f"[usage]\nsince = {value}\n")
    assert (error.stable_code, error.where) == ("invalid_value", "ctx.toml:2")
    assert error.message == "'usage.since': should be a day"
    assert "2026-11-30" in error.fix
    for right in ('"2026-11-30"', "2026-11-30"):
        assert load(f"[usage]\nsince = {right}\n").config.usage.since == date(2026, 11, 30)


def test_several_mistakes_are_reported_at_once(load: Load):
    error = _refusal(
        load, BASIC.replace('kind = "memories"', 'kind = "memory"').replace("tenant =", "tennant =")
    )
    assert error.where == "ctx.toml:3"
    assert "ctx.toml:22" in error.message


def test_an_invalid_variable_is_named_and_its_value_is_not(
    load: Load, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CTX_ARTIFACT__KEEP", "hunter2")
    error = _refusal(load, BASIC)
    assert error.where == "env CTX_ARTIFACT__KEEP"
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[project]\nname = shop\n", 2),
        ('[project]\nname = "a"\nname = "b"\n', 3),
        ("[project\n", 1),
        ("a = 1\n\nb = ", 3),
        ('a = """\n\n', 1),
        (b"a = 1\nb = '\xff'\n", 2),
        ("[project]\r\nname = shop\r\n", 2),
        ("x = " + "9" * 5_000, 1),
    ],
)
def test_a_syntax_error_names_its_line(text: str | bytes, line: int, load: Load):
    error = _refusal(load, text)
    assert error.stable_code == "invalid_toml"
    assert error.where == f"ctx.toml:{line}"


def test_values_nested_without_end_are_refused(load: Load):
    assert _refusal(load, "x = " + "[" * 5_000 + "]" * 5_000).stable_code == "invalid_toml"


def test_a_file_without_end_is_not_read(load: Load):
    assert _refusal(load, "#" * (1024 * 1024 + 1)).stable_code == "unreadable_config"


@pytest.mark.parametrize(
    "encoded", [BASIC.encode("utf-8-sig"), BASIC.replace("\n", "\r\n").encode()]
)
def test_files_of_other_editors_are_read_with_the_right_lines(encoded: bytes, load: Load):
    assert load(encoded).origin("sources.notes.path") == "ctx.toml:23"


def test_two_sources_of_one_name_are_refused(load: Load):
    error = _refusal(load, BASIC.replace('name = "notes"', 'name = "handbook"'))
    assert (error.stable_code, error.where) == ("duplicate_source", "ctx.toml:21")
    assert "ctx.toml:15" in error.fix


@pytest.mark.parametrize(
    "names", [("sales-eu", "sales_eu"), ("Sales", "sales"), ("a-b_c", "a_b-c")]
)
def test_two_source_names_that_the_asset_graph_cannot_tell_apart_are_refused(
    names: tuple[str, str], load: Load
):
    first, second = names
    text = BASIC.replace('name = "handbook"', f'name = "{first}"').replace(
        'name = "notes"', f'name = "{second}"'
    )
    error = _refusal(load, text)
    assert (error.stable_code, error.where, error.exit_code) == (
        "duplicate_source",
        "ctx.toml:21",
        2,
    )
    assert first in error.message
    assert "ctx.toml:15" in error.fix


@pytest.mark.parametrize("name", ["销售", "sales eu", "sales.eu", "sales/eu", "-sales", ""])
def test_a_source_name_that_the_asset_graph_cannot_hold_is_refused_with_its_line(
    name: str, load: Load
):
    error = _refusal(load, BASIC.replace('name = "notes"', f'name = "{name}"'))
    assert (error.stable_code, error.where) == ("invalid_value", "ctx.toml:21")


def test_a_folder_without_settings_says_how_to_begin(tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "my project")
    assert caught.value.stable_code == "no_project"
    assert caught.value.exit_code == 2
    assert caught.value.fix == f"ctx init '{tmp_path.resolve() / 'my project'}'"


def test_the_command_line_belongs_to_the_projects_tenant_unless_it_says_so(load: Load):
    text = '[project]\ntenant = "acme"\n[identity]\nprincipal = "ana"\n'
    identity = load(text).config.identity_contract()
    assert identity == Identity(principal="ana", tenant="acme")
    identity = load(text + 'tenant = "globex"\n').config.identity_contract()
    assert identity == Identity(principal="ana", tenant="globex")


def test_an_identity_without_any_tenant_is_refused(load: Load):
    error = _refusal(load, '[identity]\nprincipal = "ana"\n')
    assert error.where == "ctx.toml:1"
    assert "tenant" in error.message


def test_policy_keys_change_only_what_they_name(load: Load):
    text = (
        '[policy]\nversion = "1.1.0"\nshares = {history = 0.3}\n[policy.weights]\nauthority = 2\n'
    )
    policy = load(text).config.policy_contract()
    default = ContextPolicy()
    assert policy.weights == default.weights.model_copy(update={"authority": 2.0})
    assert policy.shares == {**default.shares, "history": 0.3}
    assert policy.policy_version != default.policy_version
    assert type(policy) is ContextPolicy


def test_a_policy_file_lies_between_the_defaults_and_the_settings_file(load: Load, tmp_path: Path):
    (tmp_path / "strict.toml").write_text(
        "candidate_limit = 9\nmin_relevance = 0.5\n", encoding="utf-8"
    )
    loaded = load('[policy]\npath = "strict.toml"\nmin_relevance = 0.6\n')
    policy = loaded.config.policy_contract()
    assert (policy.candidate_limit, policy.min_relevance) == (9, 0.6)
    assert loaded.origin("policy.candidate_limit") == "strict.toml:1"
    assert loaded.origin("policy.min_relevance") == "ctx.toml:3"


def test_a_mistake_in_the_policy_file_is_placed_there(load: Load, tmp_path: Path):
    (tmp_path / "strict.toml").write_text(
        "candidate_limit = 9\nmin_relevence = 0.5\n", encoding="utf-8"
    )
    error = _refusal(load, '[policy]\npath = "strict.toml"\n')
    assert (error.stable_code, error.where) == ("unknown_key", "strict.toml:2")
    assert _refusal(load, '[policy]\npath = "none.toml"\n').stable_code == "unreadable_config"


OWN_MODEL = """\
[[models]]
model_id = "house"
max_input_tokens = 1000
max_output_tokens = 100
preferred_context_target = 500
compaction_threshold = 800
"""


def test_a_model_of_ones_own_may_be_the_default(load: Load):
    config = load('[project]\ndefault_model = "house"\n' + OWN_MODEL).config
    assert config.models[0].max_input_tokens == 1000


def test_an_unknown_default_model_names_its_line_and_the_nearest(load: Load):
    error = _refusal(load, '[project]\ndefault_model = "gpt-5-minni"\n')
    assert (error.stable_code, error.where) == ("unknown_model", "ctx.toml:2")
    assert "'gpt-5-mini'" in error.fix


def test_two_models_of_one_name_are_refused(load: Load):
    assert _refusal(load, OWN_MODEL + OWN_MODEL).stable_code == "duplicate_model"


def test_a_model_needs_the_vocabulary_it_counts_with(load: Load):
    error = _refusal(load, '[engine]\nencodings = ["cl100k_base"]\n')
    assert error.where == "ctx.toml:2"
    assert "'o200k_base'" in error.message


def test_rows_show_every_setting_with_its_origin(load: Load):
    rows = {row.key: (row.value, row.origin) for row in load(BASIC).rows()}
    assert rows["project.name"] == ("shop", "ctx.toml:2")
    assert rows["identity.groups"] == ("analysts", "ctx.toml:8")
    assert rows["artifact.keep"] == ("5", "default")
    assert rows["sources.handbook.freshness"] == ("warn 64800s, fail 86400s", "ctx.toml:18")
    assert rows["sources.notes.groups"] == ("none", "default")
    assert "sources.notes.freshness" not in rows
    assert rows["ledger.url"] == ("none", "default")


def test_a_secret_is_never_shown(load: Load, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CTX_LEDGER__URL", "postgresql://u:hunter2@db/ledger")
    text = BASIC + (
        '[[sources]]\nname = "db"\nkind = "sql"\nurl = '
        '"postgresql://u:hunter2@db/shop?password=hunter2"\n'
    )
    loaded = load(text)
    shown = {row.key: row for row in loaded.rows()}
    assert shown["ledger.url"][1:] == ("****", "env CTX_LEDGER__URL")
    assert shown["sources.db.url"].value == "postgresql://****@db/shop?****"
    assert "hunter2" not in repr(loaded.config)
    assert loaded.config.ledger.url is not None
    assert loaded.config.ledger.url.get_secret_value() == "postgresql://u:hunter2@db/ledger"


@pytest.mark.parametrize("plain", ["documents", "a@b", "https://example.com/a/b", "docs/*.md"])
def test_what_is_no_secret_is_shown_as_it_is(plain: str):
    assert mask_url(plain) == plain


def test_an_unknown_key_has_no_origin(load: Load):
    with pytest.raises(ConfigError) as caught:
        load(BASIC).origin("project.nmae")
    assert caught.value.stable_code == "unknown_key"


def test_the_configuration_cannot_be_changed(load: Load):
    loaded = load(BASIC)
    with pytest.raises(ValidationError, match="frozen"):
        loaded.config.project.name = "other"  # type: ignore[misc]


def test_each_kind_of_source_has_an_authority():
    assert set(DEFAULT_AUTHORITY) == set(SourceKind)


@given(st.integers(80, 3_000_000))
def test_a_single_duration_is_the_fail_window_and_warns_at_three_quarters(seconds: int):
    freshness = Freshness.model_validate(f"{seconds}s")
    assert freshness.fail == timedelta(seconds=seconds)
    assert freshness.warn == freshness.fail * 3 / 4
    assert timedelta(seconds=60) <= freshness.warn < freshness.fail


@pytest.mark.parametrize(
    ("written", "hours"), [("90m", 1.5), ("24h", 24), ("7d", 168), ("36500d", 876_000)]
)
def test_durations_are_written_with_a_unit(written: str, hours: float):
    assert Freshness.model_validate(written).fail == timedelta(hours=hours)


@pytest.mark.parametrize(
    "written", ["", "24", "24 h", "-1h", "1.5h", "１h", "24H", "999999999d", 24, None, True, []]
)
def test_anything_else_is_no_duration(written: object):
    with pytest.raises(ValidationError):
        Freshness.model_validate(written)


def test_home_is_what_was_said_then_the_variable_then_the_nearest_project_then_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    project = tmp_path / "shop"
    inside = project / "documents" / "en"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    assert find_home(None) == inside
    (project / "ctx.toml").write_text("", encoding="utf-8")
    assert find_home(None) == project
    monkeypatch.setenv("CTX_HOME", str(tmp_path / "other"))
    assert find_home(None) == tmp_path / "other"
    assert find_home("../../third") == project / "third"
    monkeypatch.setenv("CTX_HOME", "")
    assert find_home(None) == project


def test_the_settings_library_is_loaded_only_for_variables(load: Load, tmp_path: Path):
    load(BASIC)
    script = (
        "import sys; from pathlib import Path; from "
        "ctx_pipeline.config.settings import load_config; "
    )
    script += "load_config(Path(sys.argv[1])); print('pydantic_settings' in sys.modules)"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CTX_")}
    for extra, expected in (({}, "False"), ({"CTX_PROJECT__NAME": "x"}, "True")):
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            env={**environment, **extra, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
            capture_output=True, text=True, encoding="utf-8", check=True,
        )  # fmt: skip
        assert done.stdout.strip() == expected
