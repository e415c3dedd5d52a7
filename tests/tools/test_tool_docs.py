"""docs/: what is generated is current, and what is shown as a command is one."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from hvdcompose.hosts.explain import KNOWN

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import docs  # noqa: E402

PAGES = {page.name: page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))}
COMMANDS = dict(docs.commands(docs.typer.main.get_command(docs.app)))
TYPED = [
    pytest.param(line.removeprefix("$ "), id=f"{page}: {line}"[:80])
    for page, text in PAGES.items()
    for kind, body in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)
    if kind == "console"
    for line in body.splitlines()
    if line.startswith("$ hvdcompose")
]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_current(page):
    assert docs.refreshed(PAGES[page]) == PAGES[page], "python tools/docs.py makes it so"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_on_a_page(name):
    """Once, with its options; groups are told by their commands."""
    block = f"<!-- generated: options {name} -->"
    group = hasattr(COMMANDS[name], "commands") and not COMMANDS[name].invoke_without_command
    assert sum(text.count(block) for text in PAGES.values()) == (0 if group else 1)


@pytest.mark.parametrize("typed", TYPED)
def test_what_is_typed_is_a_command_with_these_options(typed):
    words = typed.partition(" -- ")[0].split()[1:]
    name = " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else words[0]
    known = {option for param in COMMANDS[name].params for option in param.opts}
    assert {word for word in words if re.fullmatch(r"--?[a-z]+", word)} <= known


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.message[:50])
def test_every_known_failure_is_on_the_page(known):
    assert any(re.search(known.pattern, text, re.IGNORECASE | re.DOTALL) for text in docs.SYMPTOMS), (
        "add it in tools/docs.py"
    )


@pytest.mark.parametrize("text", docs.SYMPTOMS)
def test_every_symptom_is_recognised(text):
    assert docs.recognise(text)


@pytest.mark.parametrize(("old", "new"), docs.MISTAKES, ids=lambda text: text)
def test_every_mistake_is_told(old, new):
    assert old in docs.FILE
    assert f"| `{docs.cell(new)}` |" in PAGES["troubleshooting.md"]


@pytest.mark.parametrize("page", PAGES)
def test_the_readme_leads_to_every_page_and_links_lead_somewhere(page):
    assert f"(docs/{page})" in (ROOT / "README.md").read_text()
    for link in re.findall(r"\]\(([^)#:]+)\)", PAGES[page]):
        assert (ROOT / "docs" / link).exists(), link


def test_a_session_is_played_anew_and_its_files_are_written(tmp_path):
    page = "a\n```python\n# model/x.py\nprint()\n```\n```console\n$ one\nold\n$ two\n```\n```yaml\n$ three\n```\n"
    seen = []

    def run(command):
        seen.append(command)
        return f"{command} told\n"

    new = docs.played(page, run, tmp_path)
    assert seen == ["one", "two"]
    assert new == page.replace("$ one\nold\n$ two\n", "$ one\none told\n$ two\ntwo told\n")
    assert (tmp_path / "model" / "x.py").read_text() == "# model/x.py\nprint()\n"
