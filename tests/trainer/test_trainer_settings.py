"""The trainer's options: the public example's defaults, one message per mistake; no engine, no PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainer import options
from trainer.options import environment_rank
from trainer.settings import learning_rate, parse_settings


def test_defaults_are_the_public_examples():
    given = parse_settings([])
    assert (given.dataset.name, given.data_dir) == ("mnist", None)
    assert (given.batch_size, given.test_batch_size, given.epochs) == (64, 1000, 10)
    assert (given.lr, given.momentum, given.seed, given.log_interval) == (0.01, 0.5, 42, 10)
    assert (given.optimizer, given.lr_schedule, given.weight_decay) == ("sgd", "constant", 0.0)
    assert (given.fp16_allreduce, given.use_adasum, given.gradient_predivide_factor) == (False, False, 1.0)
    assert given.cuda
    assert given.batch_total is None


def test_a_recipe_is_what_the_other_options_begin_with():
    fast = parse_settings(["--recipe", "fast"])
    assert (fast.optimizer, fast.lr_schedule, fast.batch_total) == ("adam", "onecycle", 240)
    other = parse_settings(["--epochs", "3", "--recipe", "fast", "--lr", "0.5"])
    assert (other.epochs, other.lr, other.optimizer, other.batch_total) == (3, 0.5, "adam", 240)
    assert parse_settings(["--recipe", "fast", "--batch-total", "60"]).batch_total == 60


def test_a_batch_for_each_process_takes_the_place_of_the_recipe_s():
    given = parse_settings(["--recipe", "fast", "--batch-size", "32"])
    assert (given.batch_size, given.batch_total) == (32, None)


def test_all_options_are_taken():
    words = """
        --dataset fashion-mnist --data-dir /d --limit 5 --batch-size 1 --test-batch-size 2 --epochs 3
        --lr 1e-3 --momentum 0 --weight-decay 0 --optimizer adam --lr-schedule onecycle --seed 0
        --fp16-allreduce --gradient-predivide-factor 2 --no-cuda --log-interval 4 --save /s/w.pt
    """
    given = parse_settings(words.split())
    assert (given.dataset.folder, given.data_dir, given.save) == ("FashionMNIST", Path("/d"), Path("/s/w.pt"))
    assert (given.batch_size, given.lr, given.momentum, given.limit) == (1, 0.001, 0.0, 5)
    assert not given.cuda


def test_the_weights_go_where_the_run_s_output_goes(monkeypatch):
    monkeypatch.delenv("HVD_OUTPUT", raising=False)
    assert parse_settings([]).save is None
    monkeypatch.setenv("HVD_OUTPUT", "/hvd/output/r1")
    assert parse_settings([]).save == Path("/hvd/output/r1/model.pt")
    assert parse_settings(["--save", "/s/w.pt"]).save == Path("/s/w.pt")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--batch-size x", "argument --batch-size: 'x' is not a whole number of 1 or more"),
        ("--batch-size 0", "argument --batch-size: '0' is not a whole number of 1 or more"),
        ("--epochs 1.5", "argument --epochs: '1.5' is not a whole number of 1 or more"),
        ("--lr 0", "argument --lr: '0' is not a number above 0"),
        ("--lr nan", "argument --lr: 'nan' is not a number above 0"),
        ("--lr inf", "argument --lr: 'inf' is not a number above 0"),
        ("--momentum 1", "argument --momentum: '1' is not a number from 0 to below 1"),
        ("--batch-size 3 --batch-total 3", "argument --batch-total: not allowed with argument --batch-size"),
        ("--recipe slow", "argument --recipe: invalid choice: 'slow'"),
        ("--batch 3", "unrecognized arguments: --batch 3"),
        ("--dataset cifar", "argument --dataset: invalid choice: 'cifar'"),
        (
            "--use-adasum --gradient-predivide-factor 2",
            "--gradient-predivide-factor works on averages; leave it out with --use-adasum",
        ),
    ],
)
def test_mistakes(words, message, capsys):
    with pytest.raises(SystemExit) as caught:
        parse_settings(words.split())
    told = capsys.readouterr().err
    assert caught.value.code == 2
    assert told.startswith(f"python -m trainer.mnist: error: {message}")
    assert told.endswith("(--help lists the options)\n")
    assert told.count("\n") == 1


def test_only_rank_0_complains(monkeypatch, capsys):
    slept: list[float] = []
    monkeypatch.setattr(options.time, "sleep", slept.append)
    monkeypatch.setenv("HOROVOD_RANK", "3")
    with pytest.raises(SystemExit) as caught:
        parse_settings(["--lr", "0"])
    assert caught.value.code == 2
    assert capsys.readouterr().err == ""
    assert slept, "it must outlast rank 0, whose end makes the launcher end everybody"


@pytest.mark.parametrize(
    ("environment", "rank"),
    [({}, 0), ({"HOROVOD_RANK": "2"}, 2), ({"OMPI_COMM_WORLD_RANK": "1"}, 1), ({"HOROVOD_RANK": ""}, 0)],
)
def test_environment_rank(environment, rank):
    assert environment_rank(environment) == rank


def test_constant_learning_rate():
    assert {learning_rate("constant", 0.04, step, 100) for step in range(100)} == {0.04}


@pytest.mark.parametrize("steps", [1, 2, 3, 10, 1000])
def test_onecycle_rises_to_the_peak_and_falls(steps):
    rates = [learning_rate("onecycle", 0.1, step, steps) for step in range(steps)]
    top = rates.index(max(rates))
    assert max(rates) == pytest.approx(0.1)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert min(rates) > 0
    if steps == 1000:
        assert rates[-1] == pytest.approx(0.001, rel=0.01)
