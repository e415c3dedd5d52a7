"""Commands that tell of past runs and bring home what they made: runs, report, fetch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hvdcompose.cli.options import HERE, File, Json, Yes, confirmed, target_of
from hvdcompose.cli.panels import PanelGroup

if TYPE_CHECKING:
    from hvdcompose.deploy.target import Target
    from hvdcompose.report.records import History

PANEL = "Runs"
Run = Annotated[str, typer.Argument(metavar="[RUN]", help="A run's id, a beginning of it, or last.")]
runs = typer.Typer(cls=PanelGroup, help="Past runs, as the primary keeps them.", invoke_without_command=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(runs, name="runs", rich_help_panel=PANEL)
    app.command(rich_help_panel=PANEL)(report)
    app.command(rich_help_panel=PANEL)(fetch)


@runs.callback()
def list_runs(context: typer.Context, file: File = HERE, as_json: Json = False) -> None:
    """List all runs, the newest first; `runs show` tells everything of one."""
    if context.invoked_subcommand is not None:
        context.default_map = {"show": {"file": str(file)}}
        return
    import time

    from hvdcompose import console
    from hvdcompose.report.runs import COLUMNS, row

    told = history_of(target_of(file))
    console.answer({"runs": [told.to_json(record) for record in told.records], "live": told.live})
    if told.starting:
        console.say(f"run {told.live} is not launched yet: hvdcompose logs -f", "cyan")
    if told.records:
        console.table(COLUMNS, [row(record, told.live, time.time(), None) for record in told.records])
    elif not told.starting:
        console.say("there is no run yet: hvdcompose run", "cyan")


@runs.command()
def show(run: Run = "last", file: File = HERE, as_json: Json = False) -> None:
    """Show everything of one run: who ran where, how each rank ended, times, metrics, the cause of a failure."""
    import time

    from hvdcompose import console
    from hvdcompose.report.runs import details

    told = history_of(target_of(file))
    record = told.find(run)
    console.answer({"run": told.to_json(record)})
    for line in details(record, told.live, time.time(), None):
        console.out(line)


def report(
    run: Run = "last",
    out: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: report-RUN.html here.")
    ] = None,
    file: File = HERE,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Write one HTML page about a run: what ran where, its phases, how each rank ended, the ends of the logs."""
    from collections import deque

    from hvdcompose import console
    from hvdcompose.deploy.history import logs_of
    from hvdcompose.hosts.local import write_page
    from hvdcompose.report.page import TAIL, page

    target = target_of(file)
    told = history_of(target)
    record = told.find(run)
    path = out or Path(f"report-{record.run}.html")
    logs = {name: [text for _, text in deque(lines, TAIL)] for name, lines in logs_of(target, record.run).items()}
    text = page(record, told.live, logs, None)
    if not write_page(path, text, f"<title>Run {record.run}</title>", replace=False):
        confirmed(f"{path} holds something else than a report of run {record.run}: replace it?", yes=yes)
        write_page(path, text, "", replace=True)
    console.answer({"run": record.run, "file": str(path)})
    console.say(f"run {record.run}: {path}")


def fetch(
    run: Annotated[
        str,
        typer.Argument(metavar="[RUN]", help="A run's id, a beginning of it, or last: the last that wrote anything."),
    ] = "last",
    out: Annotated[Path | None, typer.Option("--output", "-o", metavar="DIR", help="Default: output/RUN here.")] = None,
    file: File = HERE,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Bring home what a run wrote to $HVD_OUTPUT on the primary; goes on where it was interrupted."""
    from hvdcompose import console
    from hvdcompose.deploy.fetch import bring, look_at_output, source_of
    from hvdcompose.errors import HvdError
    from hvdcompose.hosts.local import shown
    from hvdcompose.hosts.transfer import told_size
    from hvdcompose.report.records import LAST, find_run

    target = target_of(file)
    output = target.cluster.train.output
    if output is None:
        raise HvdError(
            f"{file} has no train.output: nothing that a run writes is kept",
            hint=f"train: {{output: {target.cluster.name}-output}}, and have the command write to $HVD_OUTPUT",
        )
    source = source_of(target, output)
    lines = console.HostLines([target.primary.host])

    def folder_of(name: str) -> Path:
        return out or Path("output") / name

    sight = look_at_output(source, lambda names: find_run(names, run, "output of a run"), folder_of, lines)
    folder = folder_of(sight.run)
    if sight.different:
        names = ", ".join(shown(entry.path) for entry in sight.different[:3]) + ", ..." * (len(sight.different) > 3)
        confirmed(f"{folder} holds other files than run {sight.run}: {names}. Replace them?", yes=yes)
    came = bring(source, sight, folder, lines)
    console.end_progress()
    brought = len(sight.missing) + len(sight.different)
    left = {shown(path): why for path, why in sight.left.items()}
    newer = _newer_run(target, sight.run) if run == LAST else None
    if newer:
        console.say(f"run {newer} is newer, and wrote nothing to $HVD_OUTPUT: this is run {sight.run}'s", "yellow")
    console.answer(
        {
            "run": sight.run,
            "newer": newer,
            "folder": str(folder),
            "files": brought,
            "same": len(sight.same),
            "bytes": came,
            "left": left,
        }
    )
    for path, why in left.items():
        console.say(f"not brought home: {path}: {why}", "yellow")
    had = f"; {len(sight.same)} already there" if sight.same else ""
    files = f"{brought} file{'s' * (brought != 1)} fetched ({told_size(came)} sent)"
    console.say(f"run {sight.run}: {files} into {folder}{had}", "green")
    if sight.unreadable:
        raise typer.Exit(1)


def _newer_run(target: Target, run: str) -> str | None:
    """Return the newest run, where that is not the one that is fetched as the last; None too where nobody can tell."""
    from hvdcompose.errors import HostError

    try:
        records = history_of(target).records
    except HostError:
        return None
    began = next((record.begin for record in records if record.run == run), None)
    newest = records[0] if records else None
    return newest.run if newest and began is not None and newest.begin > began else None


def history_of(target: Target) -> History:
    """Return the runs that the primary keeps; a record that cannot be read is told. Raises HostError."""
    from hvdcompose import console
    from hvdcompose.deploy.history import records_of
    from hvdcompose.report.records import new_history

    kept = records_of(target)
    told = new_history(kept.texts, kept.live)
    for name in told.broken:
        console.say(f"{target.primary.host}: the record of run {name} cannot be read", "yellow")
    return told
