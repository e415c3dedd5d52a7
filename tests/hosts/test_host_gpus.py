"""GPUs as `docker run` is asked for them, and as a container lists them."""

from __future__ import annotations

import pytest

from hvdcompose.config.model import Gpus
from hvdcompose.errors import HostError
from hvdcompose.hosts.engine import Engine
from hvdcompose.hosts.gpus import count_listed, gpu_words, try_gpus

WORDS = [
    pytest.param(Gpus(), [], id="none"),
    pytest.param(Gpus(kind="all"), ["--gpus", "all"], id="all"),
    pytest.param(Gpus(kind="count", count=2), ["--gpus", "2"], id="count"),
    pytest.param(Gpus(kind="ids", ids=("0", "GPU-8a5e")), ["--gpus", '"device=0,GPU-8a5e"'], id="ids: a CSV in quotes"),
    pytest.param(
        Gpus(kind="cdi", ids=("nvidia.com/gpu=0", "nvidia.com/gpu=1")),
        ["--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=1"],
        id="cdi",
    ),
]


@pytest.mark.parametrize(("gpus", "words"), WORDS)
def test_words(gpus, words):
    assert gpu_words(gpus) == words


LISTED = """\
GPU 0: NVIDIA TITAN V (UUID: GPU-8a5e0b9c-1111-2222-3333-444455556666)
GPU 1: NVIDIA A100 (UUID: GPU-8a5e0b9c-1111-2222-3333-444455556667)
  MIG 1g.5gb     Device  0: (UUID: MIG-7a)
"""


@pytest.mark.parametrize(("text", "count"), [(LISTED, 2), ("", 0), ("No devices were found\n", 0)])
def test_count(text, count):
    assert count_listed(text) == count


def test_a_try_runs_in_the_image_with_the_reservation(program, tmp_path):
    program("docker", f"printf '%s\\n' \"$@\" > {tmp_path}/words; cat <<'END'\n{LISTED}END\n")
    assert try_gpus(Engine("beta", "c1"), "trainer:1", Gpus(kind="all")) == 2
    words = (tmp_path / "words").read_text().splitlines()
    assert words[:-2] == [
        *("--context", "c1", "run", "--rm", "--pull", "never", "--network", "none"),
        *("--gpus", "all", "--entrypoint", "sh", "trainer:1"),
    ]
    assert words[-2] == "-c"


def test_a_host_without_gpu_runtime(program):
    program(
        "docker",
        """echo 'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].' >&2
        exit 125
        """,
    )
    with pytest.raises(HostError) as caught:
        try_gpus(Engine("beta", "c1"), "trainer:1", Gpus(kind="all"))
    assert caught.value.message == "trying its GPUs: its Docker engine has no NVIDIA GPU runtime"
