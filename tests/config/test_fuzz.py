"""Whatever the file holds: a Cluster or a ConfigError comes out, and every mistake has a line of the file."""

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hvdcompose.config.model import Cluster
from hvdcompose.config.source import load_cluster, parse_cluster
from hvdcompose.errors import ConfigError

SHIPPED = (Path(__file__).parents[2] / "cluster.yaml").read_text(encoding="utf-8")
KEYS = sorted(set(re.findall(r"(\w+):", SHIPPED)) | {"ulimits", "interface", "soft", "hard", "memlock", "<<"})
VALUES = [
    *(
        "~",
        "yes",
        "22:22",
        "0600",
        "1.10",
        "-1",
        "0x_",
        ".nan",
        "2024-01-01",
        "all",
        "none",
        "[]",
        "{}",
        "''",
        "/",
    ),
    *(
        "&a [*a]",
        "!!int x",
        "*a",
        '"\\0"',
        '"\\ud800"',
        "a: b",
        "- a",
        "[",
        "'",
        "\t",
        "---",
        "<<",
        "? x",
        "|",
        ">",
    ),
]


def check(text: str) -> None:
    lines = len(text.splitlines())
    try:
        cluster = parse_cluster(text, source="cluster.yaml", is_folder=lambda folder: len(folder) % 2 == 1)
    except ConfigError as error:
        assert error.problems
        assert all(1 <= problem.line <= max(lines, 1) and problem.column >= 1 for problem in error.problems)
        assert len(set(map(str, error.problems))) == len(error.problems)
        assert len(str(error).splitlines()) == len(error.problems)
    else:
        assert isinstance(cluster, Cluster)
        assert cluster.primary in cluster.hosts
        assert 1 <= cluster.train.np <= cluster.slots


words = (
    st.sampled_from([*KEYS, *VALUES]) | st.text(max_size=8) | st.integers() | st.floats() | st.none() | st.booleans()
)


@st.composite
def mutated(draw):
    """The shipped file with a few lines dropped, doubled, moved in or given another value."""
    lines = SHIPPED.splitlines()
    for _ in range(draw(st.integers(1, 4))):
        number = draw(st.integers(0, len(lines) - 1))
        key, colon, _value = lines[number].partition(":")
        change = draw(st.sampled_from(["drop", "double", "value", "indent", "cut", "insert"]))
        if change == "drop":
            lines[number] = ""
        elif change == "double":
            lines.insert(number, lines[number])
        elif change == "value":
            lines[number] = f"{key}{colon} {draw(st.sampled_from(VALUES) | st.text(max_size=8))}"
        elif change == "indent":
            lines[number] = " " * draw(st.integers(0, 6)) + lines[number].strip()
        elif change == "cut":
            lines[number] = lines[number][: draw(st.integers(0, len(lines[number])))]
        else:
            lines.insert(number, f"  {draw(st.sampled_from(KEYS))}: {draw(st.sampled_from(VALUES))}")
    return "\n".join(lines)


@given(st.text())
@example("\ufeffname: x")
@example("a: 1\x85b: [")
@example("\r\r[")
@example("%YAML 2.0\n---\na: 1")
@example('"\\U00110000"')
@example("? ? ? ?")
@example("<<: <<")
@example("=: =")
@example("---")
@example("&a")
def test_any_text(text):
    check(text)


@given(mutated())
@settings(max_examples=400)
def test_mutated_shipped_file(text):
    check(text)


structures = st.recursive(
    words,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), below),
    max_leaves=30,
)


@given(structures)
def test_any_structure(value):
    check(yaml.safe_dump(value, allow_unicode=True))


@given(
    st.fixed_dictionaries(
        {
            "name": st.just("demo"),
            "image": st.just("demo") | structures,
            "hosts": st.dictionaries(
                st.sampled_from(["a", "b", "no", "A"]),
                st.fixed_dictionaries(
                    {"address": st.sampled_from(["10.0.0.1", "alpha", "::1"])},
                    optional=dict.fromkeys(("gpus", "slots", "env", "volumes", "ulimits", "primary"), structures),
                ),
            ),
            "train": st.fixed_dictionaries(
                {"command": st.just("x") | structures},
                optional=dict.fromkeys(("np", "env", "volumes", "code"), structures),
            ),
        },
        optional=dict.fromkeys(("ssh", "defaults", "horovod", "version", "x-y"), structures),
    )
)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_file_of_the_right_shape(value):
    check(yaml.safe_dump(value, allow_unicode=True, sort_keys=False))


@given(st.binary())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes(tmp_path, content):
    file = tmp_path / "cluster.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError):
        load_cluster(file)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 100_000, id="brackets"),
        pytest.param("- " * 100_000, id="dashes"),
        pytest.param("? " * 100_000, id="question marks"),
        pytest.param("image: " + "a" * 200_000, id="long word"),
        pytest.param("image: " + "a-" * 100 + "/", id="image that backtracks"),
        pytest.param("image: " + "a." * 100 + ":x/", id="registry that backtracks"),
    ],
)
@pytest.mark.timeout(20)
def test_text_made_to_hang(text):
    check(text)
