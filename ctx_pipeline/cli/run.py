"""What every command shares: the flags that all have, the streams, and how an error leaves the
process.
"""

from __future__ import annotations

import inspect
import json
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast, get_type_hints

import typer
from typer.core import TyperGroup

from ctx_pipeline.cli.identity import IdentityFlags, merged_identity
from ctx_pipeline.errors import CtxError, InvalidRequest

if TYPE_CHECKING:
    from ctx_pipeline.cli.views import Block
    from ctx_pipeline.contracts import Identity
    from ctx_pipeline.project import ContextProject

PROGRAM = "ctx"
"""What usage lines call us, however we were started."""
DEBUG_VARIABLE = "CTX_DEBUG"
NO_SOURCES = "No sources yet: add a [[sources]] table to ctx.toml; `ctx init DIR` writes examples"
COMMAND_ORDER = (
    *(
        "init",
        "demo",
        "build",
        "status",
        "publish",
        "retire",
        "assemble",
        "expand",
        "explain",
        "why",
        "why-not",
    ),
    *("replay", "diff", "items", "index", "policy", "tools", "config", "doctor", "dev"),
)
"""As help lists them: the way through a project."""
INTERRUPTED = 130
"""128 + SIGINT, what shells report."""
WITHOUT_IDENTITY = frozenset(
    {
        "init",
        "demo",
        "build",
        "status",
        "publish",
        "retire",
        "index",
        "policy",
        "tools",
        "config",
        "doctor",
        "dev",
    }
)
READER_GONE = 141
"""128 + SIGPIPE: what every Unix tool leaves behind when its reader closes early."""

HomeFlag = Annotated[
    str | None,
    typer.Option(
        "--home",
        metavar="DIR",
        help=(
            "The project's folder. Default: CTX_HOME, else the nearest "
            "folder upwards with a ctx.toml."
        ),
        rich_help_panel="Common",
    ),
]
JsonFlag = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON document on stdout; words for people go to stderr."
    ),
]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one command."""

    command: str
    out: TextIO
    """Where data goes; `sys.stdout` may be something else while a command runs."""
    home_flag: str | None = None
    as_json: bool = False
    flags: IdentityFlags = field(default_factory=IdentityFlags)
    help: Callable[[], str] = str

    @property
    def home(self) -> Path:
        """The project's folder."""
        from ctx_pipeline.config.settings import find_home

        return find_home(self.home_flag)

    def open(self, *, asked: str | None = None) -> ContextProject:
        """Open the project; use it in a `with`. `asked` is what it will be asked for at once."""
        from ctx_pipeline.config.settings import load_config

        loaded = load_config(self.home)
        if asked:
            from ctx_pipeline.index.embedder import embed_while

            embed_while(loaded.embedder_model, asked)
        # The thread embeds while these are imported.
        from ctx_pipeline.project import ContextProject
        from ctx_pipeline.workspace import Workspace

        return ContextProject(Workspace(loaded))

    def identity(self, project: ContextProject) -> Identity | None:
        """Return who asks; None leaves it to `ctx.toml`."""
        return merged_identity(self.flags, project.config.identity_contract())

    def emit(self, document: Any) -> None:
        """Print one JSON document; what nobody sees, and what a terminal would obey, stands there
        in escapes.
        """
        from ctx_pipeline.text import escape_unreadable

        text = json.dumps(plain(document), ensure_ascii=False, indent=2, allow_nan=False)
        self.out.write(escape_unreadable(text) + "\n")

    def exact(self, text: str) -> None:
        """Print text byte for byte: UTF-8, no newline added or changed; on a terminal, without what
        it would obey.
        """
        from ctx_pipeline.text import legible

        self.out.flush()
        text = legible(text) if self.out.isatty() else text
        self.out.buffer.write(text.encode("utf-8"))
        self.out.buffer.flush()

    def show(self, text: str) -> None:
        """Print what a person reads."""
        self.out.write(text)

    def blocks(self, blocks: Sequence[Block]) -> None:
        """Print blocks for a person."""
        from ctx_pipeline.cli.views import layout

        self.out.write(layout(blocks, self.out))

    def hint(self, name: str, *words: str) -> str:
        """Return a command line that this caller can run as it stands."""
        return self.hinting(None)(name, *words)

    def hinting(self, home: Path | None) -> Callable[..., str]:
        """Return what makes command lines for the project at `home`; None is
        the one of this run.
        """
        where = self.home_flag if home is None else _near(home)
        common = [] if where is None else ["--home", where]
        who = [part for name, value in self.flags.spelled() for part in (f"--{name}", value)]

        def line(name: str, *words: str) -> str:
            return shlex.join(
                ["ctx", name, *words, *([] if name in WITHOUT_IDENTITY else who), *common]
            )

        return line

    def progress(self) -> Callable[[str, int, int], None]:
        """Return what tells, on stderr, how far something is: a line that grows on a terminal, else
        one line a step.
        """
        terminal = sys.stderr.isatty()

        def tell(stage: str, done: int, total: int) -> None:
            if terminal:
                sys.stderr.write(
                    f"\r\x1b[K{stage} {done:,} of {total:,}" + ("\n" if done >= total else "")
                )
            elif done >= total:
                sys.stderr.write(f"{stage} {total:,}\n")
            sys.stderr.flush()

        return tell

    def say(self, words: str) -> None:
        """Tell a person something beside the data."""
        from ctx_pipeline.text import legible

        sys.stderr.write(f"{legible(words)}\n")
        sys.stderr.flush()


def plain(value: Any) -> Any:
    """Return a value of ours as what JSON holds."""
    from dataclasses import asdict, is_dataclass
    from datetime import datetime

    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, tuple) and hasattr(cast("Any", value), "_asdict"):
        return plain(cast("Any", value)._asdict())
    if is_dataclass(cast("Any", value)) and not isinstance(value, type):
        return plain(asdict(cast("Any", value)))
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in cast("Sequence[Any]", value)]
    return str(value) if isinstance(value, Path) else value


class FlagGroup:
    """Base of a frozen dataclass whose fields are flags of one command.

    A command that takes such a group as one argument has a flag for each field.
    """

    __slots__ = ()


class ReaderGone(Exception):
    """Whoever read our output has closed it."""


def command(
    app: typer.Typer, name: str, *, example: str, identity: bool = False, group: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a command whose first argument is its `Run`.

    The command gets `--home` and `--json`, and with `identity` the flags that say who asks. A
    `group` runs when it is named without a command of its own, and hands its flags down.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        def call(context: typer.Context, **given: Any) -> None:
            run = _run_of(context, given, identity=identity)
            if group:
                context.obj = run
                if context.invoked_subcommand is not None:
                    return
            _guarded(function, run, given)

        _sign(call, function, identity=identity)
        epilog = "\b\nExample:\n" + "\n".join(f"  {line}" for line in example.splitlines())
        if group:
            app.callback(invoke_without_command=True, help=inspect.getdoc(function), epilog=epilog)(
                call
            )
        else:
            app.command(name, help=inspect.getdoc(function), epilog=epilog)(call)
        return function

    return register


def _guarded(function: Callable[..., None], run: Run, given: Mapping[str, Any]) -> None:
    try:
        # What a library prints must not end up in the data.
        with redirect_stdout(sys.stderr):
            function(run, **_grouped(function, given))
        run.out.flush()
    except BrokenPipeError as cause:
        raise ReaderGone from cause


def _run_of(context: typer.Context, given: dict[str, Any], *, identity: bool) -> Run:
    """Take the common flags out of what was given; those before the command count where it has
    none.
    """
    above: Run | None = context.obj
    home: str | None = given.pop("home")
    as_json: bool = given.pop("as_json")
    names = [item.name for item in fields(IdentityFlags)]
    own = {name: given.pop(name) for name in names} if identity else {}
    inherited = {} if above is None else dict(above.flags.spelled())
    flags = IdentityFlags(
        **{**inherited, **{name: value for name, value in own.items() if value is not None}}
    )
    if home is not None and not home.strip():
        raise InvalidRequest(
            "the folder's name is empty", where="--home", fix="name a folder, or leave --home out"
        )
    return Run(
        command=context.command_path,
        out=sys.stdout if above is None else above.out,
        home_flag=home if home is not None else (above.home_flag if above is not None else None),
        as_json=as_json or (above is not None and above.as_json),
        flags=flags,
        help=context.get_help,
    )


def _near(folder: Path) -> str:
    """Return a folder as it is best typed: relative when it lies below the current one."""
    here = Path.cwd()
    return str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder)


def _groups(function: Callable[..., None]) -> dict[str, type[FlagGroup]]:
    """Return the arguments of a command that stand for several flags."""
    hints = get_type_hints(function)
    return {
        name: hint
        for name, hint in hints.items()
        if isinstance(hint, type) and issubclass(hint, FlagGroup)
    }


def _flags_of(group: type) -> list[tuple[str, Any, Any]]:
    """Return name, annotation and default of each flag of a group."""
    hints = get_type_hints(group, include_extras=True)
    return [(flag.name, hints[flag.name], flag.default) for flag in fields(group)]


def _grouped(function: Callable[..., None], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a command: flags that belong to a group are put into it."""
    rest = dict(given)
    made: dict[str, Any] = {}
    for name, group in _groups(function).items():
        made[name] = group(**{flag: rest.pop(flag) for flag, _, _ in _flags_of(group)})
    return {**rest, **made}


def _sign(call: Callable[..., None], function: Callable[..., None], *, identity: bool) -> None:
    """Give `call` the signature that the command line is made from."""
    hints, groups = get_type_hints(function, include_extras=True), _groups(function)
    flags: list[tuple[str, Any, Any]] = []
    for own in list(inspect.signature(function).parameters.values())[1:]:
        group = groups.get(own.name)
        flags += [(own.name, hints[own.name], own.default)] if group is None else _flags_of(group)
    flags += _flags_of(IdentityFlags) if identity else []
    flags += [("home", HomeFlag, None), ("as_json", JsonFlag, False)]
    parameters = [
        inspect.Parameter(
            "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
        ),
        *(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint
            )
            for name, hint, default in flags
        ),
    ]
    call.__name__ = function.__name__
    call.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


class CtxGroup(TyperGroup):
    """The whole command line: turns what goes wrong into words, or into JSON, and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run one command line and exit."""
        del prog_name, standalone_mode, windows_expand_args
        words = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
        try:
            result = super().main(words, PROGRAM, complete_var, standalone_mode=False, **extra)
            code = result if isinstance(result, int) else 0
            if code == INTERRUPTED:
                stopped = CtxError(
                    "stopped by Ctrl-C",
                    fix="run the same command again: it goes on from what is stored",
                    code="interrupted",
                )
                _report(stopped, as_json=as_json)
        except ReaderGone:
            _discard_stdout()
            code = READER_GONE
        except Exception as error:
            failure = _as_ctx_error(error)
            _report(failure, as_json=as_json)
            code = failure.exit_code
        sys.exit(code)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands in the order in which a project needs them."""
        place = {name: number for number, name in enumerate(COMMAND_ORDER)}
        return sorted(
            super().list_commands(ctx), key=lambda name: (place.get(name, len(place)), name)
        )


app = typer.Typer(
    cls=CtxGroup, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)
"""Commands register themselves here when their module is imported."""


def _as_ctx_error(error: Exception) -> CtxError:
    if isinstance(error, CtxError):
        return error
    if isinstance(error, typer.TyperException):
        context: typer.Context | None = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "ctx"
        return InvalidRequest(
            _flat(error.format_message()), where=path, fix=f"see `{path} --help`", code="usage"
        )
    if os.environ.get(DEBUG_VARIABLE) == "1":
        traceback.print_exception(error)
    from ctx_pipeline.machine_faults import system_error

    if (typed := system_error(error, Path.cwd())) is not None:
        return typed
    return CtxError(
        f"unexpected {type(error).__name__}",
        where="ctx",
        fix=(
            f"run it again with {DEBUG_VARIABLE}=1 for the traceback, "
            "run `ctx doctor`, and report it"
        ),
        code="internal",
    )


def _flat(words: str) -> str:
    return " ".join(words.split()) or "wrong usage"


def _report(error: CtxError, *, as_json: bool) -> None:
    from ctx_pipeline.text import escape_unreadable, legible

    if as_json:
        document: dict[str, Any] = dict(error.as_dict())
        if trace_id := getattr(error, "trace_id", None):
            document["trace_id"] = trace_id
        sys.stdout.write(
            escape_unreadable(json.dumps({"error": document}, ensure_ascii=False, indent=2)) + "\n"
        )
        sys.stdout.flush()
    sys.stderr.write(legible(str(error)) + "\n")


def _discard_stdout() -> None:
    """Point stdout at nothing, so that what is still buffered causes no complaint at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return


def speak_utf8() -> None:
    """Read and write UTF-8 whatever the locale says; what cannot be written is
    escaped, not lost.
    """
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="backslashreplace")
