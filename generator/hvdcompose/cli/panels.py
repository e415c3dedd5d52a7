"""The help of a group of commands as plain text, under one heading per panel.

typer's own screen imports rich's Markdown, syntax and traceback parts: more CPU than everything else `--help` does.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class PanelGroup(TyperGroup):
    """Lists its commands by their `rich_help_panel`, each with its whole first paragraph."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one list per panel, panels and commands in the order they were added in."""
        shown = {name: command for name, command in self.commands.items() if not command.hidden}
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in shown.items():
            paragraph = (command.help or "").partition("\n\n")[0]
            panel = getattr(command, "rich_help_panel", None) or "Commands"
            panels.setdefault(panel, []).append((name.ljust(max(map(len, shown))), " ".join(paragraph.split())))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)
