"""The trainer in its image, with a real horovodrun: collectives, training, and failures that end."""

from __future__ import annotations

import gzip
import json
import time

import pytest

pytestmark = pytest.mark.engine

QUICK = ("--dataset", "fashion-mnist", "--data-dir", "/data", "--limit", "6000", "--epochs", "2", "--no-cuda")
FAST_LEARNING = ("--optimizer", "adam", "--lr", "0.003", "--batch-size", "32")


def result_of(finished) -> dict:
    assert finished.returncode == 0, finished.stdout + finished.stderr
    # horovodrun may put its own mark before a rank's line.
    line = next(line for line in reversed(finished.stdout.splitlines()) if '"accuracy"' in line)
    return json.loads(line[line.index("{") :])


def errors_of(finished) -> list[str]:
    whole = finished.stdout + finished.stderr
    return [line for line in whole.splitlines() if "error: " in line and "horovodrun" not in line]


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_collectives_and_training_are_right(container, controller):
    finished = container.horovodrun(controller, "trainer.ops_check")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "WRONG" not in finished.stdout
    assert "ok training equals one process" in finished.stdout
    assert "checks passed on 2 processes" in finished.stdout


def test_one_process_needs_no_launcher(container):
    finished = container.run("python", "-m", "trainer.mnist", *QUICK, *FAST_LEARNING)
    result = result_of(finished)
    assert (result["np"], result["epochs"], result["dataset"]) == (1, 2, "fashion-mnist")
    assert result["accuracy"] > 0.6
    assert finished.stdout.count("Test set: Average loss: ") == 2
    assert "Train Epoch: 1 [0/6000 (0%)]\tLoss: " in finished.stdout


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_two_processes_learn(container, controller, tmp_path):
    began = time.time()
    finished = container.horovodrun(
        controller,
        *("trainer.mnist", *QUICK, *FAST_LEARNING, "--save", "/out/weights.pt"),
        volumes=(f"{tmp_path}:/out",),
    )
    result = result_of(finished)
    assert (result["np"], result["batch_size"], result["steps"]) == (2, 32, 2 * 94)  # 3000 images each, by 32
    assert result["accuracy"] > 0.6
    assert result["images_per_second"] > 0
    assert began < result["first_step_at"] < time.time()
    # what each rank computed and what it waited is what it trained, and the test comes on top
    assert len(result["compute_seconds"]) == len(result["communication_seconds"]) == 2
    parts = result["compute_seconds"][0] + result["communication_seconds"][0]
    assert parts == pytest.approx(result["train_seconds"], abs=0.01)
    assert 0 < result["test_seconds"] < result["seconds"] - result["train_seconds"]
    # One voice: each epoch's line comes once, and the data is prepared once.
    assert finished.stdout.count("Accuracy: ") == 2
    assert (finished.stdout + finished.stderr).count("fashion-mnist: prepared in") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["weights.pt"]


def test_a_batch_of_all_processes_is_shared_out(container):
    """The number of steps, and with it what is learnt, is that of one process."""
    words = ("trainer.mnist", *QUICK, "--recipe", "fast", "--epochs", "2")
    result = result_of(container.horovodrun("gloo", *words))
    assert (result["batch_size"], result["steps"]) == (120, 2 * 25)
    assert result["accuracy"] > 0.6


def test_image_holds_the_trainer_itself(container):
    finished = container.run("python", "-m", "trainer.data", "--help", code=False)
    assert finished.returncode == 0, finished.stderr
    assert "--source" in finished.stdout


def test_mounted_code_wins_over_the_images(container):
    where = "import trainer; print(trainer.__file__)"
    assert container.run("python", "-c", where).stdout == "/hvd/code/trainer/__init__.py\n"
    assert container.run("python", "-c", where, code=False).stdout == "/opt/trainer/trainer/__init__.py\n"


def test_torchvision_imports(container):
    finished = container.run("python", "-c", "import torchvision.datasets, torchvision.transforms", code=False)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(
            ("--data-dir", "/nowhere"),
            "error: /nowhere: no such folder; create it, or mount",
            id="no data folder",
        ),
        pytest.param(
            ("--data-dir", "/data", "--save", "/nowhere/w.pt"),
            "error: rank 0: --save /nowhere/w.pt: /nowhere is no folder",
            id="one rank's problem",
        ),
        pytest.param(
            ("--data-dir", "/data", "--batch-total", "241"),
            "error: --batch-total 241 cannot be shared out to 2 processes evenly; try 242",
            id="batch that does not divide",
        ),
        pytest.param(("--lr", "0"), "error: argument --lr: '0' is not a number above 0", id="wrong option"),
        pytest.param(
            ("--data-dir", "/data", "--limit", "600", "--lr", "1e30"),
            "error: the training diverged in epoch 1",
            id="diverged",
        ),
    ],
)
def test_failures_end_all_ranks_with_one_message(container, words, message):
    started = time.monotonic()
    finished = container.horovodrun("gloo", "trainer.mnist", "--dataset", "fashion-mnist", *words, timeout=90)
    assert finished.returncode != 0
    told = errors_of(finished)
    assert len(told) == 1, finished.stdout + finished.stderr
    assert message in told[0]
    assert "/trainer/" not in finished.stderr, "a traceback through our code"
    assert time.monotonic() - started < 90


def test_damaged_data_ends_all_ranks_with_one_message(container, tmp_path):
    folder = tmp_path / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"x" * 5000)[:-9])
    finished = container.horovodrun(
        "gloo",
        *("trainer.mnist", "--dataset", "fashion-mnist", "--data-dir", "/damaged"),
        timeout=90,
        volumes=(f"{tmp_path}:/damaged",),
    )
    assert finished.returncode != 0
    told = errors_of(finished)
    assert len(told) == 1, finished.stdout + finished.stderr
    assert "train-images-idx3-ubyte.gz is damaged" in told[0]
