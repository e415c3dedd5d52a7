"""Whatever a user writes comes back unchanged from the rendered file: by YAML's rules, and by the real Compose."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from clusters import TWO, cluster_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hvdcompose.config.model import Gpus, Mount
from hvdcompose.stack.plan import HostPlan, plan_host
from hvdcompose.stack.render import OF_ROLE, SCRIPTS, render, render_command, scalar, templates

NASTY = [
    *("", " ", "  two", "trailing ", "'", '"', "it's", 'say "hi"', "\\", "\\n", "\n", "\n\n", "a\nb", "a\n", "\ta"),
    *("\r", "a\rb", "\r\n", "$", "$$", "$X", "${X}", "${X:-y}", "$$X", "$(id)", "`id`", "{{", "}}", "{{ x }}"),
    *("{% if %}", "{# c #}", "#", " #", "a #b", ": ", "a: b", "a:", "-", "- a", "--lr", "---", "...", "[", "]", "}"),
    *("&a", "*a", "!tag", "|", ">", "%", "@", "?", "? a", "~", "null", "true", "no", "0600", "22:22", "1e3", ".5", "="),
    *("ä", "日本語", "🚀", "\u0085", "a\u0085b", "\u2028", "a\u2029b", "\ufeff", "\u00a0", "\u200b", "\ufffd"),
    *("\x01", "\x07", "\x08", "\x0b", "\x0c", "\x1b[1m", "\x1f", "\x7f", "\x80", "\x9f", "x" * 3000, "a " * 300),
]  # fmt: skip
# no NUL (it ends a C string) and no half characters: config refuses both
TEXT = st.one_of(
    st.sampled_from(NASTY),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    st.text(st.sampled_from("$'\"\\\n\r\t {}#:-%&*!|>\x85\u2028a1")),
)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]*", fullmatch=True)
LAUNCHER = plan_host(cluster_of(), cluster_of().primary)


def undoubled(value):
    """Undo what is doubled against Compose's interpolation."""
    return value.replace("$$", "$")


def read_back(plan: HostPlan) -> dict:
    (service,) = yaml.safe_load(render(plan))["services"].values()
    return service


@given(TEXT)
@example("$" * 7)
@settings(max_examples=500, deadline=None)
def test_a_scalar_is_one_line_and_comes_back(text):
    line = scalar(text)
    assert "\n" not in line and "\r" not in line
    assert undoubled(yaml.safe_load(line)) == text
    assert yaml.safe_load(f"- {{key: {line}, next: 1}}") == [{"key": text.replace("$", "$$"), "next": 1}]


@given(st.dictionaries(NAMES, TEXT, max_size=5))
@example({"true": "1", "null": "2", "no": "3", "ON": "4", "y": "5", "_": "6"})
@settings(max_examples=100, deadline=None)
def test_variables_come_back(env):
    found = read_back(replace(LAUNCHER, environment=env))["environment"]
    found = {name: undoubled(value) for name, value in found.items() if not name.startswith("HVD_")}
    assert found == {name: value for name, value in env.items() if not name.startswith("HVD_")}


@given(st.lists(TEXT, min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_the_words_of_a_command_come_back(words):
    found = read_back(replace(LAUNCHER, command=tuple(words)))["command"]
    assert [undoubled(word) for word in found] == words
    adhoc = yaml.safe_load(render_command(words))["services"]["launcher"]["command"]
    assert [undoubled(word) for word in adhoc] == words


@given(TEXT, TEXT, st.booleans())
@settings(max_examples=100, deadline=None)
def test_paths_of_mounts_come_back(source, target, read_only):
    mount = Mount(target=f"/{target}", source=f"/{source}", read_only=read_only)
    found = read_back(replace(LAUNCHER, mounts=(mount,)))["volumes"][-1]
    assert found == {
        "type": "bind",
        "source": f"/{source}".replace("$", "$$"),
        "target": f"/{target}".replace("$", "$$"),
        "read_only": read_only,
        "bind": {"create_host_path": False},
    }


@given(TEXT, TEXT, TEXT, TEXT)
@settings(max_examples=50, deadline=None)
def test_image_ssh_folder_size_and_gpus_come_back(image, folder, size, device):
    plan = replace(
        LAUNCHER,
        image=image,
        ssh_volume=f"/{folder}",
        shm_size=f"{size}1g",
        gpus=Gpus(kind="cdi", ids=(device, "second")),
    )
    found = read_back(plan)
    assert undoubled(found["image"]) == image
    assert undoubled(found["volumes"][0]["source"]) == f"/{folder}"
    assert undoubled(found["shm_size"]) == f"{size}1g"
    devices = found["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
    assert [undoubled(one) for one in devices] == [device, "second"]


@pytest.mark.parametrize("role", OF_ROLE)
def test_scripts_come_back_byte_for_byte(role):
    cluster = cluster_of()
    plan = plan_host(cluster, cluster.primary if role == "launcher" else cluster.secondaries[0])
    document = yaml.safe_load(render(plan))
    by_target = {entry["target"]: entry for entry in document["services"][role]["configs"]}
    assert set(by_target) == {"/hvd/host.json", *(SCRIPTS[name][0] for name in OF_ROLE[role])}
    for name in OF_ROLE[role]:
        target, mode = SCRIPTS[name]
        content = document["configs"][by_target[target]["source"]]["content"]
        assert undoubled(content).encode() == (templates() / "hvd" / name).read_bytes()
        assert by_target[target]["mode"] == int(mode, 8), "a quoted one is decimal to Compose 2.26"


def test_scripts_are_plain_text():
    """A literal block of YAML holds these as they are only while they are ASCII and end with one newline."""
    for path in (templates() / "hvd").iterdir():
        if path.is_file():
            content = path.read_bytes()
            assert content.isascii() and b"\r" not in content and b"\t" not in content, path
            assert content.endswith(b"\n") and not content.endswith(b"\n\n"), path


def compose_config(path: Path) -> dict:
    words = ["docker", "compose", "-f", str(path), "config", "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "Compose warns of nothing, such as a variable that is not set"
    return json.loads(done.stdout)


# The client program `docker compose` is needed from here on, not an engine; `make test-unit` may run without it.
@pytest.mark.engine
def test_the_real_compose_reads_every_value_unchanged(tmp_path):
    """Its `config` doubles each $ again, so that its own output could be read as a file."""
    env = {f"V{number}": value for number, value in enumerate(NASTY)} | {"true": "1", "null": "2", "no": "3"}
    plain = [text for text in NASTY if "/" not in text and text not in ("", ".", "..") and not text.isspace()]
    mounts = tuple(Mount(target=f"/t{number}", source=f"/s{number}/{text}x") for number, text in enumerate(plain))
    plan = replace(LAUNCHER, environment=env, command=tuple(NASTY), mounts=mounts)
    path = tmp_path / "compose.yaml"
    path.write_text(render(plan), encoding="utf-8")
    found = compose_config(path)["services"]["launcher"]
    assert [undoubled(word) for word in found["command"]] == NASTY
    told = {name: undoubled(value) for name, value in found["environment"].items()}
    assert told == {**env, **dict.fromkeys(("HVD_KEYS", "HVD_LAUNCH", "HVD_RUN", "HVD_IMAGE", "HVD_CODE"), "")}
    binds = {m["target"]: undoubled(m["source"]) for m in found["volumes"] if m["type"] == "bind"}
    assert binds == {mount.target: mount.source for mount in mounts}


@pytest.mark.engine
def test_the_real_compose_reads_the_scripts_unchanged(tmp_path):
    cluster = cluster_of(f"{TWO}  code: ./trainer\n")
    for host in cluster.hosts:
        plan = plan_host(cluster, host)
        path = tmp_path / host.name / "compose.yaml"
        path.parent.mkdir()
        path.write_text(render(plan))
        (path.parent / ".env").write_text("HVD_KEYS=k1\nHVD_IMAGE=i1\nHVD_CODE=c1\nHVD_LAUNCH=l1\nHVD_RUN=r1\n")
        document = compose_config(path)
        service = document["services"][plan.role]
        sources = {entry["target"]: entry["source"] for entry in service["configs"]}
        for name in OF_ROLE[plan.role]:
            content = document["configs"][sources[SCRIPTS[name][0]]]["content"]
            assert undoubled(content).encode() == (templates() / "hvd" / name).read_bytes()
        assert json.loads(document["configs"]["hvd_host"]["content"]) == plan.settings
        labels = {name.removeprefix("hvdcompose."): value for name, value in service["labels"].items()}
        assert (labels["keys"], labels["image"], labels["code"]) == ("k1", "i1", "c1"), "from .env beside the file"
        assert document["volumes"]["code"]["name"] == "demo-code-c1"
        of_launcher = {"HVD_LAUNCH": "l1", "HVD_RUN": "r1", "HVD_IMAGE": "i1", "HVD_CODE": "c1"}
        run = of_launcher if plan.role == "launcher" else {}
        assert service["environment"] == {"PYTHONUNBUFFERED": "1", "HVD_KEYS": "k1", **run}


@pytest.mark.engine
def test_the_real_compose_lays_another_command_over_the_launcher_s(tmp_path):
    (tmp_path / "compose.yaml").write_text(render(LAUNCHER))
    (tmp_path / "command.yaml").write_text(render_command(["horovodrun", "/hvd/rank", "sh", "-c", "echo $HOME"]))
    words = ["docker", "compose", "-f", "compose.yaml", "-f", "command.yaml", "config", "--format", "json"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    service = json.loads(done.stdout)["services"]["launcher"]
    assert service["command"] == ["horovodrun", "/hvd/rank", "sh", "-c", "echo $$HOME"]
    assert service["image"] == "trainer:1", "everything else stays"
