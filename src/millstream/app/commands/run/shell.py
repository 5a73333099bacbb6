"""`millstream shell`: CQL at a prompt, with completion, history and results as they come.

Without `--url` an engine in this process; with it, a running system. Text from `-c` or a pipe is
carried out and the shell ends at the first mistake. Exit codes: 0; 2 a mistake in a statement given
by `-c` or a pipe; 3 no server answers at the address; 130 ended by Ctrl-C.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from millstream.app.config import load_job
from millstream.app.session import Session
from millstream.app.shell.backend import Backend
from millstream.app.shell.interpreter import Interpreter, Leave, complete, pieces_of
from millstream.app.shell.words import at_prompt
from millstream.control.snapshot.model import known_names
from millstream.core.errors import MillstreamError
from millstream.edge.views.engine_view import EngineView
from millstream.edge.views.remote_source import RemoteSource

BANNER = r"Millstream. Statements end with a semicolon; \? lists commands, \q leaves."


def register(app: typer.Typer) -> None:
    app.command("shell")(shell)


def shell(
    job: Annotated[
        Path | None, typer.Argument(help="A job file whose streams are declared at the start.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Work on the system at this address (run --ui, up).")
    ] = None,
    command: Annotated[
        list[str] | None, typer.Option("-c", help="Carry this out, then end; may be repeated.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Rows as JSON, one a line.")] = False,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*]",
) -> None:
    """Write queries at a prompt and see their results as they come."""
    texts = list(command or ())
    if not texts and not sys.stdin.isatty():
        texts = [sys.stdin.read()]
    with _backend(job, url, master) as backend:
        interpreter = Interpreter(backend, typer.echo, as_json=json_output)
        if texts:
            for text in texts:
                for piece in pieces_of(text):
                    _carry_out(interpreter, piece)
        else:
            _prompt(interpreter, backend)


@contextmanager
def _backend(job: Path | None, url: str | None, master: str) -> Iterator[Backend]:
    if url is not None:
        source = RemoteSource(url)
        source.snapshot()  # nobody there is told at once
        with _ending_cleanly():
            yield Backend(source)
        return
    typer.echo("starting Spark", err=True)
    with Session(master=master) as session:
        for definition in load_job(job).streams if job is not None else ():
            session.system.declare(definition)
        local = session.here("a shell")
        view = EngineView(local.engine, title="shell", loop=local.loop)
        try:
            yield Backend(view, session)
        finally:
            view.close("stopped")


@contextmanager
def _ending_cleanly() -> Iterator[None]:
    """What was looked at ends with a shell that is told to end."""

    def end(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _carry_out(interpreter: Interpreter, text: str) -> None:
    try:
        interpreter.run(text)
    except Leave:
        raise typer.Exit from None


def _prompt(interpreter: Interpreter, backend: Backend) -> None:
    """Reads, carries out, tells mistakes, until the user leaves."""
    typer.echo(BANNER)
    session = _session(backend)
    while True:
        try:
            text = session.prompt()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        try:
            interpreter.run(text)
        except Leave:
            return
        except KeyboardInterrupt:
            typer.echo("")  # the query that was looked at is over
        except MillstreamError as error:
            typer.echo(f"error: {error}", err=True)


def _session(backend: Backend) -> Any:
    from prompt_toolkit import PromptSession  # noqa: PLC0415
    from prompt_toolkit.completion import Completer, Completion  # noqa: PLC0415
    from prompt_toolkit.filters import Condition  # noqa: PLC0415
    from prompt_toolkit.history import FileHistory  # noqa: PLC0415
    from prompt_toolkit.key_binding import KeyBindings  # noqa: PLC0415

    class Words(Completer):
        """What may follow at the cursor."""

        def get_completions(self, document: Any, complete_event: Any) -> Iterator[Completion]:
            try:
                known = known_names(backend.snapshot())
            except MillstreamError:
                return
            word, found = at_prompt(document.text_before_cursor, known)
            for text in found:
                yield Completion(text, start_position=-len(word))

    keys = KeyBindings()

    @Condition
    def whole() -> bool:
        return complete(session.default_buffer.text)

    @keys.add("enter", filter=whole)
    def _(event: Any) -> None:
        event.current_buffer.validate_and_handle()

    session: PromptSession[str] = PromptSession(
        "millstream> ",
        multiline=True,
        prompt_continuation="        ... ",
        history=FileHistory(str(history_file())),
        completer=Words(),
        complete_while_typing=False,
        key_bindings=keys,
    )
    return session


def history_file() -> Path:
    """Where statements are remembered; only their owner may read it."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    folder = Path(base) / "millstream"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = folder / "history"
    file.touch(mode=0o600)
    return file
