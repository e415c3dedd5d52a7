"""The command doctor: what could stop a run, on every host and between them."""

from __future__ import annotations

import typer

from hvdcompose.cli.options import HERE, File, Json, target_of


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Cluster")(doctor)


def doctor(file: File = HERE, as_json: Json = False) -> None:
    """Ask every host, and each of all others, what could stop a run; tell what to do. Starts nothing that stays."""
    from hvdcompose import console
    from hvdcompose.deploy.examine import examine
    from hvdcompose.deploy.preflight import remember
    from hvdcompose.doctor.rules import errors, findings
    from hvdcompose.errors import REFUSED
    from hvdcompose.report.doctor import screen, to_json

    target = target_of(file)
    facts = examine(target)
    found = findings(facts)
    console.answer(to_json(facts, found))
    for line in screen(facts, found):
        console.out_marked(line)
    wrong = errors(found)
    remember(target, facts, green=not wrong)
    if wrong:
        things = "1 thing" if len(wrong) == 1 else f"{len(wrong)} things"
        console.say(f"{things} would stop a run", "bold red")
        raise typer.Exit(REFUSED)
    console.say("nothing found that would stop a run", "green")
