"""The command line as people and programs use it: words, JSON, streams and exit codes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner, Result

from ctx_pipeline.cli import choices
from ctx_pipeline.cli.app import app
from ctx_pipeline.cli.identity import IdentityFlags
from ctx_pipeline.cli.run import COMMAND_ORDER, NO_SOURCES

REPOSITORY = Path(__file__).resolve().parents[2]
HEAVY = ("dagster", "duckdb", "lancedb", "numpy", "polars", "pyarrow", "tiktoken", "torch")
QUESTION = "what does GMV mean and are refunds counted?"
CLOCK = "2026-11-30T00:00:00Z"
METRIC = "metric:registry/gmv"
MAIN = "from ctx_pipeline.cli.app import main; main()"

runner = CliRunner()


def ctx(*words: str | Path, stdin: str | bytes | None = None, home: Path | None = None) -> Result:
    """Run one command line in this process."""
    where = [] if home is None else ["--home", str(home)]
    return runner.invoke(
        app, [*map(str, words), *where], input=stdin, env={"CTX_HOME": None, "CTX_DEBUG": None}
    )


def shell(
    *words: str | Path, stdin: bytes = b"", cwd: Path = REPOSITORY, **environ: str
) -> subprocess.CompletedProcess[bytes]:
    """Run one command line as its own process."""
    return subprocess.run(
        [sys.executable, "-c", MAIN, *map(str, words)],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env={**_clean_environ(), **environ},
        check=False,
        timeout=50,
    )


def _clean_environ() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("CTX_")}
    return {**kept, "PYTHONPATH": str(REPOSITORY)}


def document(result: Result) -> Any:
    """Return the one JSON document on stdout."""
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def error_of(result: Result) -> dict[str, Any]:
    """Return the error that stdout holds as JSON, and nothing else."""
    found = json.loads(result.stdout)
    assert list(found) == ["error"]
    assert set(found["error"]) >= {"code", "message", "where", "fix", "retryable"}
    return found["error"]


def _copy(home: Path, target: Path) -> Path:
    shutil.copytree(home, target)
    return target


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small built project."""
    folder = tmp_path_factory.mktemp("cli") / "shop"
    assert ctx("init", folder).exit_code == 0
    built = ctx("build", home=folder)
    assert built.exit_code == 0, built.stderr
    return folder


@pytest.fixture(scope="session")
def snapshot(home: Path) -> str:
    """Return the id of one assembled snapshot."""
    return document(ctx("assemble", QUESTION, "--at", CLOCK, "--json", home=home))["snapshot_id"]


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its path, groups included."""
    root: Any = get_command(app)
    for name, found in root.commands.items():
        yield name, found
        for below, inner in getattr(found, "commands", {}).items():
            yield f"{name} {below}", inner


COMMANDS = dict(commands())


@pytest.mark.parametrize("flag", ["--since", "--limit"])
def test_a_number_that_no_ledger_has_is_wrong_usage(home: Path, flag: str) -> None:
    refused = ctx("items", "recalls", flag, "9" * 24, "--json", home=home)
    assert (refused.exit_code, error_of(refused)["code"]) == (2, "usage")
    assert flag in error_of(refused)["message"]
    assert document(ctx("items", "recalls", "--since", str(2**63 - 1), "--json", home=home)) == []


def test_a_project_without_sources_is_told_what_to_add(tmp_path: Path):
    (tmp_path / "ctx.toml").touch()
    asked = ctx("assemble", "hi", "--tenant", "a", "--principal", "b", home=tmp_path)
    assert asked.exit_code == 7
    assert asked.stderr.startswith(NO_SOURCES)
    built = ctx("build", home=tmp_path)
    assert built.exit_code == 0
    assert NO_SOURCES in built.stderr
    served = ctx("assemble", "hi", "--tenant", "a", "--principal", "b", home=tmp_path)
    assert served.exit_code == 0
    assert NO_SOURCES in served.stderr
    strict = ctx("build", "--strict", "--json", home=tmp_path)
    assert (strict.exit_code, json.loads(strict.stdout)["items"]) == (2, 0)
    assert NO_SOURCES in strict.stderr


# --- help and documentation


def test_the_commands_are_the_documented_ones():
    assert set(COMMANDS) == {
        *COMMAND_ORDER,
        "items history",
        "items recalls",
        "index list",
        "index rollback",
        "index unpin",
        "config show",
        "policy lint",
        "policy show",
        "policy diff",
        "tools lint",
        "tools diff",
    }


def test_help_lists_commands_in_the_order_a_project_needs_them():
    shown = ctx("--help").stdout
    places = [shown.index(f"\n  {name} ") for name in COMMAND_ORDER]
    assert places == sorted(places)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_with_an_example(name: str):
    shown = ctx(*name.split(), "--help")
    assert shown.exit_code == 0
    summary = COMMANDS[name].help.splitlines()[0]
    assert summary.endswith(".")
    assert len(summary) <= 66, "it must fit into the list of commands"
    assert "Example:\n    " in shown.stdout
    assert f"  ctx {name.split()[0]}" in shown.stdout.split("Example:")[1]
    for flag in ("--home", "--json"):
        assert flag in shown.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_a_section_in_the_reference_with_all_its_flags(name: str):
    text = (REPOSITORY / "docs" / "cli.md").read_text(encoding="utf-8")
    sections = dict(
        re.findall(r"^##+ `ctx ([^`]+)`\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    )
    assert name in sections
    assert "```bash\n" in sections[name]
    assert re.match(r"\n[A-Z]", sections[name]), "a sentence comes before any code"
    common = {
        "--home",
        "--json",
        "--help",
        *(f"--{field}" for field in IdentityFlags.__dataclass_fields__),
    }
    own = {
        flag
        for parameter in COMMANDS[name].params
        for flag in parameter.opts
        if flag.startswith("--")
    }
    assert [flag for flag in sorted(own - common) if f"`{flag}" not in sections[name]] == []
    told = [
        parameter.help
        for parameter in COMMANDS[name].params
        if set(parameter.opts) & (own - common)
    ]
    assert [words for words in told if words not in sections[name]] == []
    if "--tenant" in own:
        assert "identity flags" in sections[name]


def test_the_reference_names_no_command_that_does_not_exist():
    text = (REPOSITORY / "docs" / "cli.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^##+ `ctx ([^`]+)`", text, re.MULTILINE)) == set(COMMANDS)
    for line in re.findall(r"^ctx .*$", text, re.MULTILINE):
        words = shlex.split(line.partition(" | ")[0].partition(" > ")[0])
        named = next(word for word in words[1:] if word in COMMAND_ORDER)
        assert named in COMMANDS


def test_choices_of_flags_are_those_of_the_library():
    from ctx_pipeline.contracts import ContextRequest, ItemKind, Rendition, Sensitivity
    from ctx_pipeline.contracts.render import FORMATS

    assert choices.FORMATS == FORMATS
    assert tuple(Rendition) == choices.LEVELS
    assert get_args(ContextRequest.model_fields["risk"].annotation) == choices.RISKS
    assert tuple(Sensitivity) == choices.CLEARANCES
    assert tuple(ItemKind) == choices.KINDS


@pytest.mark.parametrize(
    ("words", "flag", "near"),
    [
        (("assemble", "hi", "--format", "texd"), "--format", "text"),
        (("assemble", "hi", "--risk", "hig"), "--risk", "high"),
        (("assemble", "hi", "--clearance", "confidental"), "--clearance", "confidential"),
        (("assemble", "hi", "--required-types", "memory,metrik"), "--required-types", "metric"),
        (("expand", METRIC, "--level", "ful"), "--level", "full"),
        (("items", "--kind", "Metrics"), "--kind", "metric"),
        (("policy", "show", "--risk", "mediun"), "--risk", "medium"),
    ],
)
def test_a_misspelt_value_of_a_flag_is_answered_with_the_nearest(
    words: tuple[str, ...], flag: str, near: str
):
    refused = ctx(*words, "--json")
    assert refused.exit_code == 2
    assert (error_of(refused)["code"], error_of(refused)["where"]) == ("usage", flag)
    assert f"did you mean '{near}'?" in error_of(refused)["fix"]


def test_a_value_that_is_near_to_nothing_is_answered_with_all_there_are():
    refused = ctx("assemble", "hi", "--risk", "退款", "--json")
    assert error_of(refused)["fix"] == "use one of: low, medium, high"


def test_help_loads_nothing_heavy():
    script = (
        "import sys\nfrom ctx_pipeline.cli.app import main\ntry:\n    main()\nfinally:\n"
        "    print(*sorted(set(sys.modules) & set(sys.argv[2].split(','))), file=sys.stderr)"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            script,
            "--help",
            ",".join((*HEAVY, "rich", "ctx_pipeline.contracts")),
        ],
        capture_output=True,
        cwd=REPOSITORY,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr.strip() == b""


def test_the_version_is_told():
    from ctx_pipeline import __version__

    assert ctx("--version").stdout == f"{__version__}\n"
    assert document(ctx("--version", "--json")) == {"version": __version__}


def test_no_command_shows_help():
    assert ctx().stdout == ctx("--help").stdout


# --- errors


def test_without_a_project_the_error_says_what_to_do(tmp_path: Path):
    result = ctx("status", home=tmp_path)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("no_project: ")
    assert "fix: ctx init" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("build",),
        ("assemble", "hello"),
        ("explain", "snap_1"),
        ("why", "snap_1", "a"),
        ("why-not", "a"),
        ("replay", "snap_1"),
        ("diff", "a", "b"),
        ("items",),
        ("items", "history", "a"),
        ("expand", "a"),
        ("config",),
        ("config", "show"),
        ("dev",),
    ],
)
def test_with_json_an_error_is_one_document_on_stdout(words: tuple[str, ...], tmp_path: Path):
    result = ctx(*words, "--json", home=tmp_path)
    assert result.exit_code == 2
    assert error_of(result)["code"] == "no_project"
    assert result.stderr.startswith("no_project: ")


def test_a_project_that_is_not_built_is_unavailable(tmp_path: Path):
    ctx("init", tmp_path / "new")
    result = ctx("assemble", "hello", "--json", home=tmp_path / "new")
    assert result.exit_code == 7
    assert error_of(result) == {
        "code": "no_index",
        "message": "this project has no index yet",
        "where": ".ctx/derived",
        "fix": "run `ctx build`",
        "retryable": True,
    }


@pytest.mark.parametrize(
    ("words", "code", "where"),
    [
        (("--at", "2026-11-30T00:00:00"), "naive_time", "--at"),
        (("--at", "2026-11-30"), "naive_time", "--at"),
        (("--as-of", "2026-11-30 12:00"), "naive_time", "--as-of"),
        (("--as-of", "yesterday"), "invalid_time", "--as-of"),
        (("--at", "0001-01-01T00:00:00+14:00"), "invalid_time", "--at"),
        (("--model", "no-such-model"), "unknown_model", "model"),
        (("--budget", "0"), "invalid_request", "request.token_budget"),
        (("--clearance", "top"), "usage", "--clearance"),
        (("--tenant", ""), "invalid_request", "identity.tenant"),
        (("--budget", "many"), "usage", "ctx assemble"),
        (("--risk", "huge"), "usage", "--risk"),
        (("--format", "yaml"), "usage", "--format"),
        (("--no-such-flag",), "usage", "ctx assemble"),
        (("another", "word"), "usage", "ctx assemble"),
        (("--budget", "1"), "budget_too_small", ""),
    ],
)
def test_a_wrong_flag_is_invalid_and_named(
    home: Path, words: tuple[str, ...], code: str, where: str
):
    result = ctx("assemble", QUESTION, *words, "--json", home=home)
    assert result.exit_code == 2
    error = error_of(result)
    assert error["code"] == code
    assert where in error["where"]
    assert error["fix"]


def test_a_time_without_a_zone_is_shown_with_one(home: Path):
    error = error_of(ctx("assemble", "hi", "--at", "2026-11-30", "--json", home=home))
    assert "2026-11-30T00:00:00Z" in error["fix"]


def test_an_unknown_command_suggests_a_near_one():
    result = ctx("asemble", "hi", "--json")
    assert result.exit_code == 2
    assert "assemble" in error_of(result)["message"]


def test_a_wrong_request_is_named_by_field_and_never_repeated(home: Path, tmp_path: Path):
    secret = "sk-very-secret-value"
    path = tmp_path / "request.json"
    path.write_text(
        json.dumps({"task": {"text": "hi", "constraints": secret}, "risk": secret}),
        encoding="utf-8",
    )
    result = ctx("assemble", "--request", path, "--json", home=home)
    assert result.exit_code == 2
    assert error_of(result)["where"] in {"request.task.constraints", "request.risk"}
    assert secret not in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"{", "invalid_json"),
        (b"[]", "invalid_json"),
        (b'{"task": {"text": NaN}}', "invalid_json"),
        (b"[" * 200_000, "invalid_json"),
        (b'{"task": "\xff"}', "not_utf8"),
        (b"{}", "no_text"),
        (b'{"task": {"text": "hi"}, "surprise": 1}', "invalid_request"),
        (b'{"task": []}', "invalid_request"),
        (b'{"task": {"text": "hi"}, "identity": {"tenant": "acme"}}', "invalid_request"),
    ],
)
def test_a_broken_request_file_is_refused(home: Path, content: bytes, code: str):
    result = ctx("assemble", "--request", "-", "--json", stdin=content, home=home)
    assert result.exit_code == 2
    assert error_of(result)["code"] == code


def test_a_request_file_that_is_not_there_is_refused(home: Path, tmp_path: Path):
    result = ctx("assemble", "--request", tmp_path / "none.json", "--json", home=home)
    assert (result.exit_code, error_of(result)["code"]) == (2, "unreadable")


def test_one_stdin_cannot_be_two_inputs(home: Path):
    assert error_of(ctx("assemble", "-", "--request", "-", "--json", home=home))["code"] == "usage"


def test_a_refused_gate_carries_its_trace(home: Path):
    result = ctx("assemble", QUESTION, "--required-types", "skill,web", "--json", home=home)
    assert result.exit_code == 2
    error = error_of(result)
    assert error["code"] == "gate_failed"
    traces = document(ctx("explain", error["trace_id"], "--json", home=home))
    assert any(trace["item_id"] == METRIC for trace in traces)


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "snap_none"),
        ("replay", "snap_none"),
        ("why-not", "metric:none/none"),
        ("expand", "metric:none/none"),
        ("items", "history", "x"),
    ],
)
def test_what_is_not_there_is_not_found(home: Path, words: tuple[str, ...]):
    result = ctx(*words, "--json", home=home)
    assert (result.exit_code, error_of(result)["code"]) == (4, "not_found")


def test_an_unexpected_error_shows_no_traceback_unless_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    def broken(home: Path) -> None:
        raise ZeroDivisionError("the content of a document")

    monkeypatch.setattr("ctx_pipeline.orchestration.doctor.diagnose", broken)
    result = ctx("doctor", "--json", home=tmp_path)
    assert result.exit_code == 1
    assert error_of(result)["code"] == "internal"
    assert "Traceback" not in result.stderr
    assert "content of a document" not in result.stdout + result.stderr
    debugged = runner.invoke(app, ["doctor", "--json"], env={"CTX_DEBUG": "1"})
    assert "Traceback" in debugged.stderr
    assert json.loads(debugged.stdout)["error"]["code"] == "internal"


def test_an_interrupt_leaves_130(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def interrupted(home: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ctx_pipeline.orchestration.doctor.diagnose", interrupted)
    result = ctx("doctor", "--json", home=tmp_path)
    assert (result.exit_code, error_of(result)["code"]) == (130, "interrupted")


# --- the project


def test_init_does_not_overwrite(tmp_path: Path):
    made = document(ctx("init", tmp_path / "new", "--name", "商店", "--json"))
    assert Path(made["home"]) == tmp_path / "new"
    assert str(tmp_path / "new" / "ctx.toml") in made["files"]
    again = ctx("init", tmp_path / "new", "--json")
    assert (again.exit_code, error_of(again)["code"]) == (6, "already_exists")
    assert ctx("init", tmp_path / "new", "--force").exit_code == 0


def test_home_stands_before_or_after_the_command_or_in_the_environment(home: Path):
    after = document(ctx("status", "--json", "--home", home))
    before = document(ctx("--home", home, "--json", "status"))
    named = runner.invoke(app, ["status", "--json"], env={"CTX_HOME": str(home)})
    assert after == before == json.loads(named.stdout)
    assert after["home"] == str(home)


def test_the_nearest_home_wins(home: Path, tmp_path: Path):
    assert document(ctx("--home", tmp_path, "status", "--json", "--home", home))["home"] == str(
        home
    )
    assert ctx("--home", "", "status").exit_code == 2


def test_status_says_what_to_do_before_the_first_build(tmp_path: Path):
    ctx("init", tmp_path)
    shown = ctx("status", home=tmp_path)
    assert shown.exit_code == 0
    assert f"Nothing built yet: run `ctx build --home {tmp_path}`" in shown.stdout


def test_status_shows_each_source(home: Path):
    shown = ctx("status", home=home).stdout
    assert re.search(r"^registry +semantic_registry +healthy +2", shown, re.MULTILINE)
    found = document(ctx("status", "--json", home=home))
    assert {source["name"] for source in found["sources"]} >= {"registry", "handbook", "memories"}
    assert found["artifact"]


def test_a_second_build_embeds_only_what_is_new_and_reports_a_bad_file(home: Path, tmp_path: Path):
    copy = _copy(home, tmp_path / "copy")
    (copy / "memories" / "bad.jsonl").write_text(
        '{"id": "a", "text": "fine"}\n{"id": \n', encoding="utf-8"
    )
    shown = ctx("build", home=copy)
    assert shown.exit_code == 0
    assert "memories/bad.jsonl:2 bad_json: " in shown.stdout
    strict = ctx("build", "--strict", "--json", home=copy)
    assert strict.exit_code == 2
    report = json.loads(strict.stdout)
    assert [(error["path"], error["line"], error["code"]) for error in report["errors"]] == [
        ("memories/bad.jsonl", 2, "bad_json")
    ]
    assert report["embedded"] == 0
    assert report["items"] > 0


def test_a_wrong_selection_is_invalid(home: Path):
    result = ctx("build", "--select", "sources/none", "--json", home=home)
    assert (result.exit_code, error_of(result)["code"]) == (2, "invalid_selection")


def test_settings_are_shown_with_their_origin(home: Path):
    shown = ctx("config", "show", "--origin", home=home).stdout
    assert re.search(r"^project\.name +shop +ctx\.toml:\d+$", shown, re.MULTILINE)
    assert "ctx.toml" not in ctx("config", "show", home=home).stdout
    rows = document(ctx("config", "--json", home=home))
    assert {"key": "artifact.keep", "value": "5", "origin": "default"} in rows


# --- assemble


def test_a_pack_is_shown_with_reasons_budget_and_next_steps(home: Path):
    result = ctx("assemble", QUESTION, "--at", CLOCK, home=home)
    assert result.exit_code == 0, result.stderr
    shown = result.stdout
    assert re.search(rf"^\S+ +{METRIC} .* score \d", shown, re.MULTILINE)
    assert "usable tokens" in shown
    assert re.search(r"^Stayed out: \d+$", shown, re.MULTILINE)
    found = re.search(rf"^  ctx replay (\S+) --home {re.escape(str(home))} ", shown, re.MULTILINE)
    assert found
    assert ctx("replay", found.group(1), home=home).exit_code == 0


def test_nothing_is_coloured_or_boxed_when_no_terminal_looks(home: Path, snapshot: str):
    for words in (
        ("assemble", QUESTION),
        ("explain", snapshot),
        ("items",),
        ("status",),
        ("doctor",),
    ):
        shown = ctx(*words, home=home).stdout
        assert "\x1b" not in shown
        assert not set(shown) & set("│┃─━┏╭╰")
        assert all(line == line.rstrip() for line in shown.split("\n"))


def test_json_is_the_pack(home: Path):
    from ctx_pipeline.contracts import ContextPack

    result = ctx("assemble", QUESTION, "--at", CLOCK, "--json", home=home)
    pack = ContextPack.model_validate_json(result.stdout)
    assert METRIC in {item.item_id for item in pack.items}


def test_the_same_call_has_the_same_snapshot(home: Path, snapshot: str):
    assert (
        document(ctx("assemble", QUESTION, "--at", CLOCK, "--json", "--durable", home=home))[
            "snapshot_id"
        ]
        == snapshot
    )


def test_stdin_is_the_text_in_any_language(home: Path):
    question = "成交总额怎么算?"
    spoken = document(
        ctx("assemble", "-", "--at", CLOCK, "--json", stdin=f"{question}\n", home=home)
    )
    written = document(ctx("assemble", question, "--at", CLOCK, "--json", home=home))
    assert spoken["hash"] == written["hash"]


def test_flags_win_over_the_request_file(home: Path, tmp_path: Path):
    path = tmp_path / "request.json"
    stored = {
        "task": {"text": "something else", "goal": "kept goal"},
        "token_budget": 100_000,
        "run_id": "kept",
    }
    path.write_text("\ufeff" + json.dumps(stored), encoding="utf-8")
    words = ("--budget", "3000", "--constraint", "be brief", "--constraint", "cite", "--at", CLOCK)
    pack = document(ctx("assemble", QUESTION, "--request", path, *words, "--json", home=home))
    assert pack["budget"]["usable"] == 3000
    text = "".join(item["text"] for section in pack["sections"] for item in section["items"])
    for part in (QUESTION, "kept goal", "be brief", "cite"):
        assert part in text
    assert "something else" not in text
    kept = document(ctx("explain", "--json", home=home))
    assert [one["run_id"] for one in kept if one["snapshot_id"] == pack["snapshot_id"]] == ["kept"]


@pytest.mark.parametrize("format", choices.FORMATS)
def test_a_rendering_is_printed_instead(home: Path, snapshot: str, format: str):
    from ctx_pipeline.contracts import ContextPack

    pack = ContextPack.model_validate(
        document(ctx("replay", snapshot, "--json", home=home))["pack"]
    )
    result = ctx("assemble", QUESTION, "--at", CLOCK, "--format", format, home=home)
    as_json = ctx("assemble", QUESTION, "--at", CLOCK, "--format", format, "--json", home=home)
    assert json.loads(as_json.stdout) == pack.render(format)
    if format == "text":
        assert result.stdout_bytes == pack.render("text").encode()
    else:
        assert json.loads(result.stdout) == pack.render(format)
    assert result.stderr == f"snapshot {snapshot}\n"


# --- identity


def test_identity_flags_win_field_by_field(home: Path, snapshot: str):
    assert ctx("explain", snapshot, "--principal", "ana", home=home).exit_code == 0
    other = ctx("explain", snapshot, "--principal", "bo", "--json", home=home)
    assert (other.exit_code, error_of(other)["code"]) == (4, "not_found")


def test_hints_carry_the_identity_and_the_home(home: Path):
    shown = ctx("assemble", QUESTION, "--principal", "bo b", "--groups", "a,b", home=home).stdout
    assert f"--principal 'bo b' --groups a,b --home {home}" in shown


def test_another_tenant_drops_the_configured_groups():
    from ctx_pipeline.cli.request import merged_identity
    from ctx_pipeline.contracts import Identity

    base = Identity(principal="ana", tenant="acme", groups=("analysts",), clearance="confidential")
    assert merged_identity(IdentityFlags(), base) is None
    same = merged_identity(IdentityFlags(tenant="acme"), base)
    assert same == base
    other = merged_identity(IdentityFlags(tenant="globex"), base)
    assert other is not None
    assert (other.tenant, other.principal, other.groups) == ("globex", "ana", ())
    given = merged_identity(IdentityFlags(tenant="globex", groups="x, y,"), base)
    assert given is not None
    assert given.groups == ("x", "y")
    none = merged_identity(IdentityFlags(groups=""), base)
    assert none is not None
    assert none.groups == ()


def test_the_identity_of_a_request_file_is_the_base_for_flags(home: Path):
    stored = json.dumps(
        {"task": {"text": QUESTION}, "identity": {"tenant": "acme", "principal": "bo"}}
    )
    pack = document(
        ctx(
            "assemble", "--request", "-", "--clearance", "public", "--json", stdin=stored, home=home
        )
    )
    mine = ctx("explain", pack["snapshot_id"], "--json", home=home)
    assert mine.exit_code == 4
    assert document(ctx("explain", pack["snapshot_id"], "--principal", "bo", "--json", home=home))
    assert METRIC not in {
        item["item_id"] for section in pack["sections"] for item in section["items"]
    }


def test_another_tenant_sees_nothing(home: Path):
    assert (
        document(ctx("items", "--tenant", "globex", "--principal", "eve", "--json", home=home))
        == []
    )
    shown = ctx("items", "--tenant", "globex", "--principal", "eve", home=home)
    assert "No items that you can see" in shown.stdout
    assert (
        ctx("why-not", METRIC, "--tenant", "globex", "--principal", "eve", home=home).exit_code == 4
    )
    assert (
        ctx("expand", METRIC, "--tenant", "globex", "--principal", "eve", home=home).exit_code == 4
    )


# --- looking back


def test_explain_shows_every_candidate(home: Path, snapshot: str):
    traces = document(ctx("explain", snapshot, "--json", home=home))
    shown = ctx("explain", snapshot, home=home).stdout
    assert traces
    for trace in traces:
        assert trace["item_id"] in shown
    assert f"{len(traces)} candidates" in shown


def test_explain_without_an_id_lists_the_latest_snapshots(home: Path, snapshot: str):
    assert snapshot in {
        kept["snapshot_id"] for kept in document(ctx("explain", "--json", home=home))
    }
    assert snapshot in ctx("explain", home=home).stdout
    empty = ctx("explain", "--principal", "nobody", home=home)
    assert empty.exit_code == 0
    assert "No snapshots yet" in empty.stdout


def test_why_shows_one_item(home: Path, snapshot: str):
    traces = document(ctx("why", snapshot, METRIC, "--json", home=home))
    assert {trace["item_id"] for trace in traces} == {METRIC}
    assert "decision" in ctx("why", snapshot, METRIC, home=home).stdout
    missing = ctx("why", snapshot, "metric:none/none", "--json", home=home)
    assert (missing.exit_code, error_of(missing)["code"]) == (4, "not_discovered")


def test_why_not_probes_each_version(home: Path):
    probes = document(ctx("why-not", METRIC, "--json", home=home))
    assert probes[-1] == {
        "item_id": METRIC,
        "version": probes[-1]["version"],
        "visible": True,
        "code": None,
    }
    assert re.search(
        rf"^{METRIC} .* visible$", ctx("why-not", METRIC, home=home).stdout, re.MULTILINE
    )


def test_replay_is_byte_exact(home: Path, snapshot: str):
    replayed = document(ctx("replay", snapshot, "--json", home=home))
    assert set(replayed) == {"pack", "text", "hash"}
    done = shell("replay", snapshot, "--home", home)
    assert done.returncode == 0
    assert done.stdout == replayed["text"].encode("utf-8")
    assert replayed["pack"]["hash"] == replayed["hash"]


def test_diff_says_what_entered_and_left(home: Path, snapshot: str):
    other = document(
        ctx("assemble", QUESTION, "--at", CLOCK, "--budget", "420", "--json", home=home)
    )["snapshot_id"]
    found = document(ctx("diff", snapshot, other, "--json", home=home))
    assert (found["a"], found["b"]) == (snapshot, other)
    assert found["left"] or found["rendition_changed"]
    shown = ctx("diff", snapshot, other, home=home).stdout
    for entry in (*found["entered"], *found["left"], *found["rendition_changed"], *found["moved"]):
        assert entry["item_id"] in shown
        assert entry["reason"] in shown
    assert "Nothing changed" in ctx("diff", snapshot, snapshot, home=home).stdout


def test_items_are_listed_and_narrowed(home: Path):
    rows = document(ctx("items", "--json", home=home))
    assert [row["item_id"] for row in rows] == sorted(row["item_id"] for row in rows)
    metrics = document(
        ctx("items", "--kind", "metric", "--source", "registry", "--json", home=home)
    )
    assert {row["kind"] for row in metrics} == {"metric"}
    assert len(document(ctx("items", "--limit", "1", "--json", home=home))) == 1
    assert "raise --limit" in ctx("items", "--limit", "1", home=home).stdout


def test_the_history_of_an_item_is_told_wherever_the_flags_stand(home: Path):
    events = document(ctx("items", "history", METRIC, "--json", home=home))
    assert events[0]["to_state"] == "created"
    assert (
        document(ctx("items", "--principal", "ana", "--json", "history", METRIC, home=home))
        == events
    )
    assert "created" in ctx("items", "history", METRIC, home=home).stdout


def test_expand_prints_the_block(home: Path):
    item = document(ctx("expand", METRIC, "--json", home=home))
    assert item["rendition"] == "full"
    assert ctx("expand", METRIC, home=home).stdout_bytes == item["text"].encode("utf-8")
    pointer = document(ctx("expand", METRIC, "--level", "pointer", "--json", home=home))
    assert len(pointer["text"]) < len(item["text"])


# --- doctor


def test_a_healthy_project_passes_every_check(home: Path):
    found = document(ctx("doctor", "--json", home=home))
    names = [check["name"] for check in found["checks"]]
    assert set(names) >= {
        "python",
        "config",
        "ledger",
        "store",
        "artifact",
        "embedder",
        "tokenizers",
        "build lock",
    }
    assert {check["state"] for check in found["checks"]} == {"ok"}


def _state(result: Result, name: str) -> dict[str, Any]:
    (found,) = [check for check in json.loads(result.stdout)["checks"] if check["name"] == name]
    return found


def test_a_missing_project_is_missing(tmp_path: Path):
    result = ctx("doctor", "--json", home=tmp_path)
    assert result.exit_code == 7
    assert _state(result, "config")["code"] == "no_project"
    assert _state(result, "artifact")["state"] == "warn"


def test_wrong_settings_are_invalid(tmp_path: Path):
    (tmp_path / "ctx.toml").write_text("[project]\nnmae = 'x'\n", encoding="utf-8")
    result = ctx("doctor", "--json", home=tmp_path)
    assert result.exit_code == 2
    assert _state(result, "config")["code"] == "unknown_key"


def _artifact_folder(home: Path) -> Path:
    pointer = json.loads((home / ".ctx" / "derived" / "current.json").read_text(encoding="utf-8"))
    return home / ".ctx" / "derived" / "artifacts" / pointer["artifact"]


def _flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.unlink()
    path.write_bytes(bytes(content))


def test_a_damaged_artifact_is_corrupt(home: Path, tmp_path: Path):
    copy = _copy(home, tmp_path / "copy")
    _flip_a_byte(_artifact_folder(copy) / "vectors.arrow")
    result = ctx("doctor", "--json", home=copy)
    assert result.exit_code == 5
    assert _state(result, "artifact")["state"] == "fail"
    assert "vectors" in _state(result, "artifact")["message"]
    assert "fail" in ctx("doctor", home=copy).stdout


def test_a_changed_manifest_is_corrupt(home: Path, tmp_path: Path):
    copy = _copy(home, tmp_path / "copy")
    path = _artifact_folder(copy) / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**manifest, "rows": manifest["rows"] + 1}), encoding="utf-8")
    assert ctx("doctor", "--json", home=copy).exit_code == 5


def test_an_artifact_that_is_gone_is_missing(home: Path, tmp_path: Path):
    copy = _copy(home, tmp_path / "copy")
    shutil.rmtree(_artifact_folder(copy))
    result = ctx("doctor", "--json", home=copy)
    assert result.exit_code == 7
    assert _state(result, "artifact")["fix"] == "ctx build"


def test_a_damaged_ledger_is_corrupt(home: Path, tmp_path: Path):
    copy = _copy(home, tmp_path / "copy")
    (copy / ".ctx" / "state" / "ledger.db").write_bytes(b"no database" * 1_000)
    result = ctx("doctor", "--json", home=copy)
    assert result.exit_code == 5
    assert _state(result, "ledger")["state"] == "fail"


def test_a_running_build_is_noticed(home: Path, tmp_path: Path):
    from filelock import FileLock

    copy = _copy(home, tmp_path / "copy")
    with FileLock(copy / ".ctx" / "build.lock"):
        found = _state(ctx("doctor", "--json", home=copy), "build lock")
    assert (found["state"], found["code"]) == ("warn", "build_running")


# --- as a process


def test_a_process_exits_with_the_code_of_its_error_and_keeps_stdout_pure(
    home: Path, tmp_path: Path
):
    missing = shell("status", "--json", "--home", tmp_path)
    assert missing.returncode == 2
    assert json.loads(missing.stdout)["error"]["code"] == "no_project"
    built = shell("build", "--json", "--home", _copy(home, tmp_path / "copy"))
    assert built.returncode == 0
    assert json.loads(built.stdout)["errors"] == []


def test_text_stays_utf8_whatever_the_locale_says(home: Path):
    question = "华东区上个月 GMV 同比"
    done = shell(
        "assemble", "-", "--format", "text", "--home", home,
        stdin=question.encode(), LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert question in done.stdout.decode("utf-8")


def test_a_reader_that_closes_early_is_no_error(home: Path):
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "items", "--home", str(home)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=REPOSITORY,
        env=_clean_environ(),
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    complaint = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=50), complaint) == (128 + signal.SIGPIPE, b"")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_answers_in_two_languages(tmp_path: Path):
    result = ctx("demo", tmp_path / "demo", "--rows", "2000", "--json")
    made = document(result)
    assert set(made) == {"home", "snapshots"}
    assert set(made["snapshots"]) == {"en", "zh"}
    for snapshot_id in made["snapshots"].values():
        assert ctx("replay", snapshot_id, home=Path(made["home"])).exit_code == 0
    shown = ctx("demo", tmp_path / "demo", "--rows", "2000")
    assert "华东区上个月 GMV 同比" in shown.stdout
    assert "What to try next" in shown.stdout
    for line in re.findall(
        r"^  (ctx .*?)  # ", shown.stdout.split("What to try next")[1], re.MULTILINE
    ):
        tried = ctx(*shlex.split(line)[1:])
        assert tried.exit_code == 0, (line, tried.stderr)


def test_typer_is_the_version_whose_errors_we_translate():
    assert issubclass(typer.BadParameter, typer.TyperException)
