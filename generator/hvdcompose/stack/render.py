"""The text of a host's Compose file: HostPlan -> text. Reads the templates, nothing else."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import jinja2
import yaml

from hvdcompose.stack.plan import CODE_TARGET, HOST_TARGET, LABEL, RUNS_TARGET, SSH_TARGET, HostPlan

FORMAT = 1
SCRIPTS = {  # file in templates/hvd -> (path in the container, mode)
    "hvdlib.py": ("/hvd/hvdlib.py", "0444"),
    **{
        f"hvd{name}.py": (f"/hvd/hvd{name}.py", "0444")
        for name in ("cause", "gather", "hosts", "log", "proc", "record")
    },
    "rank.py": ("/hvd/rank", "0555"),
    "prepare.py": ("/hvd/prepare", "0555"),
    "launcher.py": ("/hvd/launcher", "0555"),
    "ssh": ("/hvd/bin/ssh", "0555"),
    "worker.py": ("/hvd/worker", "0555"),
    "sshd_config": ("/hvd/sshd_config", "0444"),
}
OF_ROLE = {
    "launcher": (
        *("launcher.py", "rank.py", "prepare.py", "ssh", "hvdlib.py", "hvdproc.py", "hvdlog.py"),
        *("hvdrecord.py", "hvdgather.py", "hvdhosts.py", "hvdcause.py"),
    ),
    "worker": ("worker.py", "rank.py", "prepare.py", "sshd_config", "hvdlib.py", "hvdproc.py", "hvdlog.py"),
}
_HEADER = re.compile(
    r"\A# hvdcompose (?P<format>\d+) \| cluster: (?P<cluster>\S+) \| host: (?P<host>\S+) \| context: (?P<context>\S+)\n"
)


def templates() -> Path:
    """Return the folder of the templates: the packaged one, else the checkout's."""
    packaged = Path(__file__).parents[1] / "templates"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "templates"


def scalar(value: object) -> str:
    """Return a YAML double-quoted scalar that Compose reads back as `value`: `$` doubled against interpolation."""
    text = str(value).replace("$", "$$")
    return yaml.safe_dump(text, default_style='"', width=10**9, allow_unicode=True).rstrip("\n")


def block(text: str, spaces: int) -> str:
    """Return the lines of a YAML literal block (`|`), indented; for our own scripts, which hold plain ASCII only."""
    return "".join(f"{' ' * spaces}{line}\n" if line else "\n" for line in text.replace("$", "$$").splitlines()).rstrip(
        "\n"
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # YAML, not HTML: `scalar` quotes
    )
    environment.filters.update(scalar=scalar, block=block, json=lambda value: json.dumps(value, indent=1))
    return environment.get_template("compose.yaml.j2")


@cache
def _script(name: str) -> str:
    return (templates() / "hvd" / name).read_text(encoding="utf-8")


def render(plan: HostPlan) -> str:
    """Return the Compose file of one host. The label `hvdcompose.spec` is a digest of the rest of the file."""
    body = _render(plan, spec="")
    return _render(plan, spec=hashlib.sha256(body.encode()).hexdigest()[:16])


def _render(plan: HostPlan, *, spec: str) -> str:
    files = [(f"hvd_{re.sub('[^a-z]', '_', name)}", *SCRIPTS[name], _script(name)) for name in OF_ROLE[plan.role]]
    return _template().render(
        plan=plan,
        spec=spec,
        format=FORMAT,
        label=LABEL,
        files=files,
        targets={"ssh": SSH_TARGET, "host": HOST_TARGET, "runs": RUNS_TARGET, "code": CODE_TARGET},
        port_hex=f"{plan.ssh_port:04X}",
    )


def probe_scripts() -> dict[str, str]:
    """Return {module: text} of what the helper container of `doctor` runs, the launcher's own login among it."""
    names = [path.name for path in (templates() / "hvd").glob("*.py")]
    return {name.removesuffix(".py"): _script(name) for name in sorted(names)}


def ssh_wrapper() -> str:
    """Return the `ssh` that is first on the launcher's PATH."""
    return _script("ssh")


def render_command(words: Sequence[str]) -> str:
    """Return a Compose file that gives the launcher another command; to be laid over the host's own."""
    listed = "".join(f"      - {scalar(word)}\n" for word in words)
    return f"# written by hvdcompose run: the command of one run\nservices:\n  launcher:\n    command:\n{listed}"


def spec_of(text: str) -> str:
    """Return the digest that a rendered file carries in its `hvdcompose.spec` label."""
    found = re.search(rf'{LABEL}\.spec: "([0-9a-f]*)"', text)
    return found.group(1) if found else ""


def header_of(text: str) -> dict[str, str] | None:
    """Return cluster, host and context from the header of a rendered file, or None when the file is not ours."""
    found = _HEADER.match(text)
    return found.groupdict() if found else None
