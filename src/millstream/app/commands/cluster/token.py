"""`millstream token`: the token of this user for others to use, or a link that opens a dashboard.

Commands on this machine find tokens by themselves. Exit codes: 0 done; 2 a mistake; 3 nobody there.
"""

from pathlib import Path
from typing import Annotated

import typer

from millstream.app.commands.cluster.credentials import token_of
from millstream.client.http import HttpClient, checked_url
from millstream.client.keyring import user_token
from millstream.core.errors import UsageError
from millstream.core.suggestions import did_you_mean


def register(app: typer.Typer) -> None:
    app.command("token")(token)


def token(
    role: Annotated[
        str, typer.Option(help="What it is good for: read, submit, or admin for everything.")
    ] = "admin",
    token_file: Annotated[
        Path | None, typer.Option(help="The file that the daemons were given; yours without it.")
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Print a link that opens this dashboard once."),
    ] = None,
) -> None:
    """Print the token that daemons ask for, or one that may less."""
    from millstream.edge.http.roles import GIVEN, Role, role_token  # noqa: PLC0415

    names = [one.name.lower() for one in GIVEN]
    if role not in names:
        near = did_you_mean(role, names)
        raise UsageError(f"there is no role {role}{near}", hint=f"one of {', '.join(names)}")
    secret = token_of(token_file) if token_file is not None else user_token()
    chosen = role_token(secret, Role[role.upper()])
    typer.echo(chosen if link is None else link_to(checked_url(link, "--link"), chosen))


def link_to(url: str, chosen: str | None = None) -> str:
    """An address that lets one browser in."""
    client = HttpClient(chosen, headers={"x-millstream": "1"})
    try:
        return url + str(client.post(f"{url}/api/links", {})["path"])
    finally:
        client.close()
