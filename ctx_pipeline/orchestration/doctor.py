"""Look a project and its machine over: each check says ok, warn or fail, and what to do. Changes
nothing.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ctx_pipeline.errors import Conflict, Corrupt, CtxError, Unavailable
from ctx_pipeline.machine_faults import can_write

if TYPE_CHECKING:
    from ctx_pipeline.config.settings import LoadedConfig

State = Literal["ok", "warn", "fail"]

TRIED_PYTHONS = ((3, 11), (3, 13))
"""First and last version that the suite runs on."""

LITTLE_DISK_BYTES = 1024**3
NO_DISK_BYTES = 64 * 1024**2
"""Below this a build cannot finish."""

LOCKS = (".ctx/build.lock", ".ctx/state/store/.write.lock")
"""Files that builds and writers lock. The lock goes with the process, the file stays."""

RECENT = timedelta(days=7)
"""How long a failed run is worth a look."""

SAMPLE = "GMV by region 华东区成交总额"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at."""

    name: str
    state: State
    message: str
    fix: str = ""
    code: str = ""
    """Stable code of what is wrong."""
    exit_code: int = 0
    """What a process that fails for this leaves behind."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Every check, in order."""

    home: str
    checks: tuple[Check, ...]

    @property
    def exit_code(self) -> int:
        """0 when nothing failed, 5 when something is corrupt, else 7 when something is missing,
        else the first's.
        """
        failed = [check.exit_code for check in self.checks if check.state == "fail"]
        return next(
            (code for code in (Corrupt.exit_code, Unavailable.exit_code) if code in failed),
            next(iter(failed), 0),
        )


def diagnose(home: Path) -> Diagnosis:
    """Check the machine, then the project at `home`; a check that fails never
    stops the next one.
    """
    checks = [
        _checked("python", _python),
        _checked("folder", lambda: _folder(home)),
        _checked("disk", lambda: _disk(home)),
    ]
    loaded: list[LoadedConfig] = []
    checks.append(_checked("config", lambda: _config(home, loaded)))
    of_project: tuple[tuple[str, Callable[[LoadedConfig], Check]], ...] = (
        ("packages", _packages),
        ("grants", _grants),
        ("ledger", _ledger),
        ("store", _store),
        ("artifact", _artifact),
        ("embedder", _embedder),
        ("tokenizers", _tokenizers),
        ("dagster", _dagster),
        ("build lock", _build_lock),
        ("alerts", _alerts),
    )
    for name, check in of_project:
        if loaded:
            checks.append(_checked(name, lambda check=check: check(loaded[0])))
        else:
            checks.append(Check(name, "warn", "not checked, because the settings do not load"))
    if loaded and loaded[0].config.policy_service.kind != "builtin":
        checks.append(_checked("policy service", lambda: _policy_service(loaded[0])))
    return Diagnosis(str(home), tuple(checks))


def _checked(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except CtxError as error:
        where = f" ({error.where})" if error.where else ""
        return Check(
            name, "fail", f"{error.message}{where}", error.fix, error.stable_code, error.exit_code
        )
    except OSError as error:
        message = f"the system refused: {error.strerror or type(error).__name__}"
        return Check(
            name,
            "fail",
            message,
            "check the folder and its rights",
            "unreadable",
            Unavailable.exit_code,
        )


def _policy_service(loaded: LoadedConfig) -> Check:
    """Ask about a label that the command line's identity may see; any valid
    answer is a good one.
    """
    from ctx_pipeline.contracts import Identity
    from ctx_pipeline.security.policy_guard import policy_guard
    from ctx_pipeline.security.visibility import EVERYONE, ScopeLabel, Viewer, label_codes

    config = loaded.config
    who = config.identity_contract() or Identity(
        principal="doctor", tenant=config.project.tenant or "doctor"
    )
    viewer = Viewer.of(who)
    label = ScopeLabel(viewer.tenant, (), (EVERYONE,), "public", None, (), (), "system_trusted")
    guard = policy_guard(config.policy_service, loaded.home)
    assert guard is not None, "this check runs only where a service is named"
    try:
        decision = guard.narrow([label], viewer, label_codes([label], viewer)).decision
    finally:
        guard.close()
    if decision.failure is not None:
        raise Unavailable(
            f"the policy service gives no valid answer ({decision.failure}), so nothing is shown "
            "to anybody",
            where="[policy_service]",
            fix="see docs/how-to/use-a-policy-service.md for what each word means",
            code="policy_service_failed",
        )
    return Check(
        "policy service", "ok", f"{decision.service} answers, policy {decision.policy_version}"
    )


def _python() -> Check:
    import platform

    found = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    first, last = TRIED_PYTHONS
    if first <= sys.version_info[:2] <= last:
        return Check("python", "ok", found)
    wanted = f"{'.'.join(map(str, first))} to {'.'.join(map(str, last))}"
    return Check(
        "python", "warn", f"{found} has not been tried", f"use Python {wanted}", "untried_python"
    )


def _folder(home: Path) -> Check:
    place = home / ".ctx" if (home / ".ctx").is_dir() else home
    if not place.is_dir():
        raise Unavailable(
            "the folder is not there", where=str(home), fix="name it with --home", code="no_folder"
        )
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".doctor"):
            pass
    except OSError as refused:
        raise Unavailable(
            f"the folder cannot be written to: {refused.strerror}",
            where=str(place),
            fix="give this user the right to write there",
            code="cannot_write",
        ) from refused
    return Check("folder", "ok", f"{place} can be written to")


def _disk(home: Path) -> Check:
    place = next(folder for folder in (home, *home.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    message = f"{free / 1024**3:.1f} GiB free"
    if free < NO_DISK_BYTES:
        raise Unavailable(
            f"only {message}", where=str(place), fix="free some disk space", code="disk_full"
        )
    if free < LITTLE_DISK_BYTES:
        return Check("disk", "warn", f"only {message}", "free some disk space", "little_disk")
    return Check("disk", "ok", message)


def _config(home: Path, loaded: list[LoadedConfig]) -> Check:
    from ctx_pipeline.config.settings import CONFIG_NAME, load_config

    if not (home / CONFIG_NAME).is_file():
        raise Unavailable(
            f"there is no {CONFIG_NAME}",
            where=str(home),
            fix="ctx init, or name the project with --home",
            code="no_project",
        )
    loaded.append(load_config(home))
    config = loaded[0].config
    if not config.sources:
        return Check(
            "config", "warn", "no sources", "add a [[sources]] table to ctx.toml", "no_sources"
        )
    return Check("config", "ok", f"{config.project.name!r} with {len(config.sources)} sources")


def _packages(loaded: LoadedConfig) -> Check:
    from ctx_pipeline.inspection.packages import lacking

    lacks = lacking(loaded)
    if not lacks:
        return Check("packages", "ok", "what the settings need is installed")
    message = "; ".join(f"{lack.where} needs {lack.what}" for lack in lacks)
    fix = "; ".join(dict.fromkeys(lack.fix for lack in lacks))
    return Check("packages", "fail", message, fix, "missing_package", Unavailable.exit_code)


def _grants(loaded: LoadedConfig) -> Check:
    from ctx_pipeline.sources.ceilings import silence
    from ctx_pipeline.sources.origin import Origin

    tenant = loaded.config.project.tenant
    lacking = {
        source.name: silence(Origin.of(source, tenant=tenant)) for source in loaded.config.sources
    }
    unseen = [f"{name} ({', '.join(lacks)})" for name, lacks in lacking.items() if lacks]
    if unseen:
        message = f"nobody sees what these sources have, for what they lack: {'; '.join(unseen)}"
        fix = 'name groups or principals in ctx.toml; for everyone of the tenant groups = ["*"]'
        return Check("grants", "warn", message, fix, "missing_scope")
    return Check("grants", "ok", f"each of {len(lacking)} sources says who may see it")


def _ledger(loaded: LoadedConfig) -> Check:
    from ctx_pipeline.workspace import read_ledger

    ledger = read_ledger(loaded.home, loaded.config.ledger)
    if ledger is None:
        return Check("ledger", "ok", "not there yet; the first call or build makes it")
    with ledger:
        report = ledger.integrity()
    if not report["ok"]:
        raise Corrupt(
            f"the ledger is damaged: {report['problems'][0]}",
            where=".ctx/state",
            fix="restore .ctx/state from a backup",
        )
    return Check(
        "ledger",
        "ok",
        f"{report['counts']['snapshots']} snapshots, {report['counts']['events']} events",
    )


def _store(loaded: LoadedConfig) -> Check:
    from ctx_pipeline.workspace import Workspace, state_folder

    folder = state_folder(loaded.home) / "store"
    if not folder.is_dir():
        return Check("store", "ok", "not there yet; the first build makes it")
    try:
        with Workspace.open(loaded.home) as workspace:
            newest = workspace.store.max_seq()
    except CtxError:
        raise
    except (
        Exception
    ) as broken:  # LanceDB raises plain RuntimeErrors and ValueErrors for damaged files.
        raise Corrupt(
            f"the item store cannot be read ({type(broken).__name__})",
            where=".ctx/state/store",
            fix="restore .ctx/state from a backup",
        ) from broken
    return Check("store", "ok", f"readable up to item version {newest}")


def _artifact(loaded: LoadedConfig) -> Check:
    from ctx_pipeline.index.artifact import Layout, read_pointer
    from ctx_pipeline.index.reader import ArtifactReader

    layout = Layout(loaded.home)
    pointer = read_pointer(layout)
    if pointer is None:
        return Check("artifact", "warn", "nothing built yet", "ctx build", "no_index")
    directory = layout.artifacts / str(pointer.get("artifact", ""))
    if not directory.is_dir():
        raise Unavailable(
            "the published artifact is gone", where=".ctx/derived", fix="ctx build", code="no_index"
        )
    manifest = ArtifactReader(directory).manifest
    for problem in _wrong_hashes(directory, manifest, pointer):
        raise Corrupt(problem, where=".ctx/derived", fix="delete .ctx/derived and run ctx build")
    if (pinned := _pinned(loaded)) is not None:
        return pinned
    return Check(
        "artifact",
        "ok",
        f"{manifest['rows']} item versions, hashes match, {manifest['content_hash'][:16]}…",
    )


def _pinned(loaded: LoadedConfig) -> Check | None:
    """Return what a person should know of a pinned index; None when builds move the pointer."""
    from datetime import UTC, datetime

    from ctx_pipeline.index.artifact import Layout
    from ctx_pipeline.index.history import index_pin, pin_today
    from ctx_pipeline.index.store import Store

    layout = Layout(loaded.home)
    if index_pin(layout) is None:
        return None
    pin = pin_today(layout, Store.of_project(loaded.home), datetime.now(UTC))
    assert pin is not None, "only `unpin` lets go of it"
    message = (
        f"whole, and pinned to {pin.artifact[:16]}… since "
        f"{pin.since:%Y-%m-%d %H:%M:%SZ}: {pin.reason}"
    )
    if pin.closed:
        message += f"; {pin.closed} items in it have been closed to some since"
        return Check(
            "artifact", "fail", message, "ctx index unpin", "rights_changed", Conflict.exit_code
        )
    return Check("artifact", "warn", message, "ctx index unpin", "index_pinned")


def _wrong_hashes(
    directory: Path, manifest: dict[str, Any], pointer: dict[str, Any]
) -> Iterator[str]:
    from ctx_pipeline.index.artifact import wrong_parts

    yield from wrong_parts(directory, manifest)
    if pointer.get("content_hash") != manifest["content_hash"]:
        yield "the index pointer names another content than the artifact has"


def _embedder(loaded: LoadedConfig) -> Check:
    from ctx_pipeline.index.artifact import Layout, read_pointer
    from ctx_pipeline.index.embedder import load_embedder

    model = load_embedder(loaded.embedder_model)
    vector = model.embed_query(SAMPLE)
    if vector.shape != (model.dim,) or not vector.any():
        raise Corrupt(
            "the embedder gives no vector",
            where="[embedder] model",
            fix="reinstall the embedder's package",
        )
    pointer = read_pointer(Layout(loaded.home))
    built_with = None if pointer is None else pointer["generation"]["embedder"]
    if built_with not in (None, model.name):
        raise Unavailable(
            f"the index was built with {built_with!r}, the settings name {model.name!r}",
            where="[embedder] model",
            fix="ctx build, or name the model the index was built with",
            code="embedder_changed",
        )
    return Check("embedder", "ok", f"{model.name} loads and embeds, {model.dim} dimensions")


def _tokenizers(loaded: LoadedConfig) -> Check:
    from ctx_pipeline.language.tokens import count_tokens

    counts = [f"{name} {count_tokens(SAMPLE, name)}" for name in loaded.config.engine.encodings]
    return Check("tokenizers", "ok", f"a sample counts {', '.join(counts)} tokens, offline")


def _dagster(loaded: LoadedConfig) -> Check:
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("dagster")
    except PackageNotFoundError:
        raise Unavailable(
            "Dagster is not installed",
            where="python",
            fix="pip install ctx-pipeline",
            code="no_dagster",
        ) from None
    folder = loaded.home / ".ctx" / "dagster"
    if not folder.is_dir():
        return Check("dagster", "ok", f"Dagster {found}; its folder is made by the first build")
    if not can_write(folder):
        raise Unavailable(
            "Dagster's folder cannot be written to",
            where=".ctx/dagster",
            fix="give this user the right to write there",
            code="cannot_write",
        )
    return Check("dagster", "ok", f"Dagster {found}, instance in .ctx/dagster")


def _build_lock(loaded: LoadedConfig) -> Check:
    from filelock import FileLock, Timeout

    held: list[str] = []
    for name in LOCKS:
        path = loaded.home / name
        if not path.exists():
            continue
        try:
            with FileLock(path, timeout=0):
                pass
        except Timeout:
            held.append(name)
    if held:
        return Check(
            "build lock",
            "warn",
            f"held: {', '.join(held)}",
            "a build is running; wait for it",
            "build_running",
        )
    return Check("build lock", "ok", "free")


def _alerts(loaded: LoadedConfig) -> Check:
    from ctx_pipeline.building.alerts import FILE, alerts_problem, newest_alerts

    if problem := alerts_problem(loaded.home):
        message = f"alerts of failed runs can be neither read nor kept ({problem})"
        return Check("alerts", "warn", message, f"move .ctx/{FILE} away", "unreadable")
    recent = [
        alert for alert in newest_alerts(loaded.home, 100) if datetime.now(UTC) - alert.at < RECENT
    ]
    if not recent:
        return Check("alerts", "ok", f"no failed run in {RECENT.days} days")
    newest = recent[0]
    assets = ", ".join(newest.assets) or newest.job
    code = f" ({newest.code})" if newest.code else ""
    return Check(
        "alerts",
        "warn",
        f"{len(recent)} failed runs in {RECENT.days} days; the newest, "
        f"{newest.at:%Y-%m-%d %H:%M}Z: {assets}, "
        f"{newest.error}{code}",
        f"open run {newest.run_id[:8]} in `ctx dev`",
        "run_failed",
    )


__all__ = ["Check", "Diagnosis", "diagnose"]
