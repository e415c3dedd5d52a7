"""The table of keys and the JSON Schema made from it, held against the reader that judges a cluster.yaml."""

from __future__ import annotations

import runpy
from pathlib import Path

import jsonschema
import pytest
import yaml
from clusters import TWO

from hvdcompose.config.keys import REQUIRED, SECTIONS, Key, Section
from hvdcompose.config.model import Cluster
from hvdcompose.config.schema import schema
from hvdcompose.config.source import parse_cluster
from hvdcompose.errors import ConfigError

ROOT = Path(__file__).parents[2]
GOLDEN = runpy.run_path(str(ROOT / "tests" / "stack" / "test_stack_golden.py"))["CLUSTERS"]
VALIDATOR = jsonschema.Draft202012Validator(schema())
EVERY = [pytest.param(section, key, id=f"{section.path}.{key.name}") for section in SECTIONS for key in section.keys]
SMALLEST = """\
name: demo
image: {name: "trainer:1"}
hosts:
  alpha: {address: 10.0.0.1}
train: {command: python train.py}
"""


def read(text: str) -> Cluster:
    return parse_cluster(text, source="cluster.yaml", is_folder=lambda _: True)


def accepted(text: str) -> tuple[bool, bool]:
    """Tell whether (our reader, the schema) takes a file."""
    try:
        read(text)
        ours = True
    except ConfigError:
        ours = False
    return ours, VALIDATOR.is_valid(yaml.safe_load(text))


def with_key(section: Section, key: str, value: str) -> str:
    """Return the smallest file with one key of a section set; what that key needs stands beside it."""
    data = yaml.safe_load(SMALLEST)
    place = data
    for word in section.path.replace("<host>", "alpha").split("."):
        if word:
            place[word] = place.get(word) or {}
            place = place[word]
    place[key] = yaml.safe_load(value)
    if key == "args" and section.path == "image":
        place["build"] = "./trainer"
    if key == "slots":
        place["gpus"] = "all"
    if section.path == "train" and key == "np":
        data["hosts"]["alpha"]["slots"] = 1024
    return yaml.safe_dump(data)


def test_it_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("text", GOLDEN.values(), ids=GOLDEN)
def test_the_golden_clusters_are_valid(text):
    assert accepted(text) == (True, True)


def test_the_shipped_cluster_is_valid():
    assert accepted((ROOT / "cluster.yaml").read_text()) == (True, True)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.path or "top")
def test_the_keys_are_the_readers_own(section):
    """What the reader offers for an unknown key is what the table holds, in whatever order."""
    with pytest.raises(ConfigError) as caught:
        read(with_key(section, "zzzzzzzz", "1"))
    (told,) = [problem for problem in caught.value.problems if problem.path.endswith("zzzzzzzz")]
    allowed = set(told.message.removeprefix("unknown key; allowed: ").split(", "))
    assert allowed == {key.name for key in section.keys} | (
        {s.path.split(".")[0] for s in SECTIONS if s.path} if not section.path else set()
    )
    assert not VALIDATOR.is_valid(yaml.safe_load(with_key(section, "zzzzzzzz", "1")))


@pytest.mark.parametrize(("section", "key"), EVERY)
def test_every_example_can_be_read(section, key):
    assert accepted(with_key(section, key.name, key.example)) == (True, True)


@pytest.mark.parametrize(("section", "key"), EVERY)
def test_a_key_is_required_where_the_table_says_so(section, key):
    data = yaml.safe_load(SMALLEST)
    place = data
    for word in section.path.replace("<host>", "alpha").split("."):
        place = place.get(word, {}) if word else place
    place.pop(key.name, None)
    assert accepted(yaml.safe_dump(data)) == ((key.default != REQUIRED),) * 2


BOUNDS = [
    pytest.param(section, key, id=f"{section.path}.{key.name}")
    for section in SECTIONS
    for key in section.keys
    if "minimum" in key.schema and "maximum" in key.schema
]


@pytest.mark.parametrize(("section", "key"), BOUNDS)
def test_the_bounds_of_numbers_are_the_readers_own(section: Section, key: Key):
    low, high = key.schema["minimum"], key.schema["maximum"]
    slots = "slots" if key.name == "np" else ""
    for number, good in ((low - 1, False), (low, True), (high, not slots), (high + 1, False)):
        ours, theirs = accepted(with_key(section, key.name, str(number)))
        assert ours == good, number
        assert theirs == (low <= number <= high), number


def test_the_defaults_are_the_models_own():
    cluster = read(SMALLEST)
    told = {(section.path, key.name): key.default for section in SECTIONS for key in section.keys}
    assert told["image", "pull"] == cluster.image.pull
    assert told["ssh", "port"] == str(cluster.ssh.port)
    assert told["ssh", "volume"].replace("<name>", cluster.name) == cluster.ssh.volume
    assert told["horovod", "controller"] == cluster.horovod.controller
    assert told["horovod", "start_timeout"] == str(cluster.horovod.start_timeout)
    assert told["runs", "keep"] == str(cluster.runs.keep)
    assert (cluster.hosts[0].gpus.kind, cluster.hosts[0].slots, cluster.train.np) == ("none", 1, 1)
    assert cluster.hosts[0].context == "alpha"


FORMS = [
    "x-anchors: {a: 1}\n",
    "ssh:\n",
    "defaults:\n",
    "horovod:\n",
    "runs:\n",
    "defaults: {gpus: 2}\n",
    "defaults: {gpus: [GPU-1, 3]}\n",
    "defaults: {gpus: {driver: cdi, ids: [nvidia.com/gpu=0]}}\n",
    "defaults: {ulimits: {memlock: -1, nofile: {soft: 1, hard: 2}}}\n",
    "defaults: {shm_size: 1073741824}\n",
    "defaults: {env: {A: 1, B: 0.5, C: x}, volumes: }\n",
]


@pytest.mark.parametrize("more", FORMS)
def test_short_forms_are_valid(more):
    assert accepted(SMALLEST + more) == (True, True)


@pytest.mark.parametrize("command", ["[python, -c, 1]", '["sh", "-c", "a && b"]', "python train.py"])
def test_commands(command):
    assert accepted(SMALLEST.replace("python train.py", command)) == (True, True)


WRONG = [
    pytest.param("image: {name", "imag: {name", id="a mistyped key"),
    pytest.param("name: demo", "name: Demo Cluster", id="a name that is none"),
    pytest.param("name: demo", "name: 22", id="a number for a name"),
    pytest.param("{address: 10.0.0.1}", "{}", id="no address"),
    pytest.param("{address: 10.0.0.1}", "{address: 'fe80::1'}", id="IPv6"),
    pytest.param("{address: 10.0.0.1}", "{address: 10.0.0.1, gpus: some}", id="a word that gpus does not take"),
    pytest.param("{address: 10.0.0.1}", "{address: 10.0.0.1, gpus: []}", id="no ids"),
    pytest.param("{address: 10.0.0.1}", "{address: 10.0.0.1, gpus: {driver: nvidia, ids: [a]}}", id="another driver"),
    pytest.param("{address: 10.0.0.1}", "{address: 10.0.0.1, slots: two}", id="a word for a number"),
    pytest.param("{address: 10.0.0.1}", "{address: 10.0.0.1, primary: 'yes'}", id="a word for true"),
    pytest.param("{address: 10.0.0.1}", "{address: 10.0.0.1, env: {1A: x}}", id="no variable"),
    pytest.param("{address: 10.0.0.1}", "{address: 10.0.0.1, volumes: {data: /x}}", id="no absolute path"),
    pytest.param("{address: 10.0.0.1}", "{address: 10.0.0.1, volumes: {/data: ./x}}", id="a path of this machine"),
    pytest.param("{address: 10.0.0.1}", "{address: 10.0.0.1, ulimits: {nofile: {soft: 1}}}", id="half a limit"),
    pytest.param("{command: python train.py}", "{command: []}", id="no command"),
    pytest.param("{command: python train.py}", "{command: x, secrets: {A: b}}", id="a secret itself"),
    pytest.param("{command: python train.py}", "{command: x, secrets: {A: {env: B, file: c}}}", id="both forms"),
]


@pytest.mark.parametrize(("old", "new"), WRONG)
def test_wrong_files_are_refused_by_both(old, new):
    assert old in SMALLEST
    assert accepted(SMALLEST.replace(old, new)) == (False, False)


def test_two_hosts_are_valid():
    assert accepted(TWO) == (True, True)
