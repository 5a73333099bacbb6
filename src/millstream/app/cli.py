"""The command line: finds the module of a command and turns errors into words and exit codes.

Modules of `commands/` are imported only when their command is asked for, so that `--version` and a
mistyped name answer at once. The lab and the benchmarks are packages of their own, which a checkout
has and an installed wheel has not. Never prints a traceback.
"""

import contextlib
import errno
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import millstream
from millstream.app import commands
from millstream.core.errors import InternalError, MillstreamError, ResourceError
from millstream.core.extras import told_where_missing
from millstream.core.suggestions import did_you_mean

TRACEBACK = "MILLSTREAM_TRACEBACK"
READER_GONE = 141
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# Typer carries its own copy of click: these are that copy's names.
UsageMistake: Any = typer.BadParameter.__bases__[0]
Command = Any
# Commands that live in a module of another name.
ELSEWHERE = {"validate": "explain"}
IN_A_CHECKOUT = {"lab": "millstream_lab", "bench": "millstream_bench"}


def command_modules() -> dict[str, str]:
    """The modules of `commands/` by name; each is named after its main command."""
    prefix = f"{commands.__name__}."
    shipped = {
        module.name.rpartition(".")[2]: module.name
        for module in pkgutil.walk_packages(commands.__path__, prefix)
        if not module.ispkg
    }
    beside = {
        name: f"{package}.command"
        for name, package in IN_A_CHECKOUT.items()
        if importlib.util.find_spec(package) is not None
    }
    return shipped | beside


# What `--help` lists together; what stands nowhere comes last.
GROUPS = {
    "Run": ("init", "run", "apply", "pause", "resume", "restart", "report", "validate",
            "explain", "shell", "demo"),
    "Cluster": ("up", "manager", "processor", "submit", "pause", "resume", "drop", "move", "drain",
                "redistribute", "replace", "balance", "shutdown", "remove", "restart", "token"),
    "Look": ("top", "status", "queries", "tail", "placement", "coordinators", "decisions", "qos",
             "check"),
    "Plan": ("plan", "place", "simulate"),
    "Research": ("lab", "bench"),
}  # fmt: skip


class LazyGroup(TyperGroup):
    """Commands by name, imported on first use."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands of `--help`, those of one use together."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        named = {name for names in GROUPS.values() for name in names}
        others = tuple(name for name in found if name not in named)
        width = formatter.width - 6 - max(len(name) for name in found)
        for title, names in {**GROUPS, "Other": others}.items():
            rows = [(n, found[n].get_short_help_str(width)) for n in names if n in found]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def list_commands(self, ctx: Any) -> list[str]:
        names = {name for module in command_modules().values() for name in _commands_of(module)}
        return sorted(names)

    def get_command(self, ctx: Any, cmd_name: str) -> Command:
        modules = command_modules()
        likely = modules.get(ELSEWHERE.get(cmd_name, cmd_name))
        others = (module for module in modules.values() if module != likely)
        for module in ([likely] if likely else []) + list(others):
            command = _commands_of(module).get(cmd_name)
            if command is not None:
                return command
        return None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            if name in IN_A_CHECKOUT:
                raise UsageMistake(
                    f"{name} is not part of the installed package: a clone has it",
                    ctx,
                )
            near = did_you_mean(name, self.list_commands(ctx))
            raise UsageMistake(f"unknown command {name}{near}", ctx)
        return super().resolve_command(ctx, args)


def _commands_of(module: str) -> dict[str, Command]:
    loaded = importlib.import_module(module)
    if not hasattr(loaded, "register"):
        return {}
    app = typer.Typer(rich_markup_mode=None)  # local[n] is no markup
    loaded.register(app)
    return dict(typer.main.get_group(app).commands)


app = typer.Typer(
    cls=LazyGroup,
    name="millstream",
    help="Many continuous queries, one shared dataflow, on Apache Spark.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"millstream {millstream.__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Many continuous queries, one shared dataflow, on Apache Spark."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line; gives the exit code."""
    streams = sys.stdout, sys.stderr
    try:
        code = _obey(arguments)
        if sys.stdout is not None:  # it is where the caller closed it
            sys.stdout.flush()  # here, where what goes wrong can still be told
    except BrokenPipeError:
        return READER_GONE
    except SystemExit as stop:
        # Typer and rich both make exit code 1 of a broken pipe; typer also wraps the streams.
        if not isinstance(stop.__context__, BrokenPipeError):
            raise
        sys.stdout, sys.stderr = streams
        return READER_GONE
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        with contextlib.suppress(OSError):  # stderr may go to the same disk
            where = f" to {error.filename}" if error.filename else ""
            print(f"error: cannot write{where}: {error.strerror}", file=sys.stderr)
        return ResourceError.exit_code
    return code


def _obey(arguments: Sequence[str] | None) -> int:
    command = typer.main.get_command(app)
    try:
        with told_where_missing():
            answer = command.main(
                args=list(arguments) if arguments is not None else None,
                prog_name="millstream",
                standalone_mode=False,
            )
    except typer.Exit as stop:
        return int(stop.exit_code)
    except UsageMistake as mistake:
        mistake.show()
        return int(mistake.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except MillstreamError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.EPIPE, *DISK_FULL):
            raise
        if os.environ.get(TRACEBACK):
            raise
        first = (str(error).strip().splitlines() or [""])[0][:300]
        print(f"error: unexpected {type(error).__name__}: {first}", file=sys.stderr)
        print(f"hint: this is a bug in Millstream; {TRACEBACK}=1 shows where", file=sys.stderr)
        return InternalError.exit_code
    return answer if isinstance(answer, int) else 0


def main() -> None:
    code = run()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:  # the interpreter would try again at its end, and complain
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)
