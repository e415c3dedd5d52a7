"""The options of `python -m trainer.mnist`, parsed and checked; standard library only."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.data import DATASETS, Dataset
from trainer.options import Parser, number

OPTIMIZERS = ("sgd", "adam")
SCHEDULES = ("constant", "onecycle")
PUBLIC_BATCH = 64
# The public example's, whose batch grows with the processes; and one that is done in half of the epochs, whose batch is
# the same for any number of processes, so that its accuracy is as well.
RECIPES: dict[str, dict[str, object]] = {
    "public": {"epochs": 10, "lr": 0.01, "optimizer": "sgd", "lr_schedule": "constant"},
    "fast": {"epochs": 4, "lr": 0.008, "optimizer": "adam", "lr_schedule": "onecycle", "batch_total": 240},
}


@dataclass(frozen=True)
class Settings:
    """What one training run does; the defaults are the public Horovod example's."""

    dataset: Dataset
    data_dir: Path | None
    """None: `data` under the working folder, made when missing."""
    batch_size: int
    """Images per step and per process, where `batch_total` does not say."""
    batch_total: int | None
    """Images per step of all processes together; None: `batch_size` of each."""
    test_batch_size: int
    epochs: int
    lr: float
    """For `batch_total`; without it for one process, and multiplied by how many there are."""
    momentum: float
    weight_decay: float
    optimizer: str
    lr_schedule: str
    seed: int
    cuda: bool
    """Whether a GPU is used where there is one."""
    log_interval: int
    """Steps between two progress lines."""
    fp16_allreduce: bool
    use_adasum: bool
    gradient_predivide_factor: float
    limit: int | None
    """Use only the first so many training images, and a sixth as many test images."""
    save: Path | None


def learning_rate(schedule: str, peak: float, step: int, steps: int) -> float:
    """Return the rate for one step of a run: constant, or a quick rise and a long fall to nearly nothing."""
    if schedule == "constant":
        return peak
    rise = max(1, round(0.2 * steps))
    if step < rise:
        return peak * (0.1 + 0.9 * (step + 1) / rise)
    return peak * (0.01 + 0.99 * (1 + math.cos(math.pi * (step - rise + 1) / (steps - rise + 1))) / 2)


def parse_settings(arguments: Sequence[str] | None = None) -> Settings:
    """Turn the command line into settings, or end the process with one message and exit code 2."""
    count = number(int, "a whole number of 1 or more", lambda value: value >= 1)
    positive = number(float, "a number above 0", lambda value: value > 0)
    not_negative = number(float, "a number of 0 or more", lambda value: value >= 0)

    parser = Parser(
        prog="python -m trainer.mnist",
        description="Train the public Horovod MNIST example's network, alone or under horovodrun.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    data = parser.add_argument_group("data")
    data.add_argument("--dataset", choices=sorted(DATASETS), default="mnist", help="what to learn")
    data.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="where the data is or is put; without it ./data, made when missing",
    )
    data.add_argument("--limit", type=count, metavar="N", help="use only N training images, for a quick try")

    recipe = parser.add_argument_group("recipe")
    recipe.add_argument("--recipe", choices=sorted(RECIPES), default="public", help="what the options below begin with")
    batch = recipe.add_mutually_exclusive_group()
    # `help` names the default, since what counts as one depends on the recipe
    told = f"images per step and process (default: {PUBLIC_BATCH})"
    batch.add_argument("--batch-size", type=count, default=argparse.SUPPRESS, metavar="N", help=told)
    told = "images per step of all processes together, whatever their number (default: 240 with --recipe fast)"
    batch.add_argument("--batch-total", type=count, default=argparse.SUPPRESS, metavar="N", help=told)
    recipe.add_argument("--test-batch-size", type=count, default=1000, metavar="N", help="images per step when testing")
    recipe.add_argument("--epochs", type=count, default=10, metavar="N", help="passes over the training images")
    recipe.add_argument(
        "--lr",
        type=positive,
        default=0.01,
        help="learning rate; without --batch-total it is multiplied by the number of processes",
    )
    recipe.add_argument(
        "--momentum",
        type=number(float, "a number from 0 to below 1", lambda value: 0 <= value < 1),
        default=0.5,
        help="SGD's momentum",
    )
    recipe.add_argument("--weight-decay", type=not_negative, default=0.0, help="shrinks the weights")
    recipe.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd", help="how gradients become steps")
    recipe.add_argument(
        "--lr-schedule",
        choices=SCHEDULES,
        default="constant",
        help="onecycle: rises for a fifth of the steps, falls after",
    )
    recipe.add_argument(
        "--seed", type=number(int, "a whole number", lambda value: value == value), default=42, metavar="N"
    )

    horovod = parser.add_argument_group("horovod")
    horovod.add_argument("--fp16-allreduce", action="store_true", help="send gradients with 16 bits")
    horovod.add_argument("--use-adasum", action="store_true", help="combine gradients with Adasum instead of averaging")
    horovod.add_argument(
        "--gradient-predivide-factor",
        type=positive,
        default=1.0,
        metavar="F",
        help="divide gradients by F before adding them up, and by the rest after",
    )

    output = parser.add_argument_group("output and device")
    output.add_argument("--no-cuda", action="store_true", help="stay on the CPU where there is a GPU")
    output.add_argument("--log-interval", type=count, default=10, metavar="N", help="steps between progress lines")
    # hvdcompose names a folder of the run's own in HVD_OUTPUT, which `hvdcompose fetch` brings home
    kept = Path(os.environ["HVD_OUTPUT"], "model.pt") if os.environ.get("HVD_OUTPUT") else None
    told = "where rank 0 writes the trained weights (default: model.pt in $HVD_OUTPUT, where there is one)"
    output.add_argument("--save", type=Path, default=kept, metavar="FILE", help=told)

    parser.set_defaults(**RECIPES[parser.parse_args(arguments).recipe])
    options = vars(parser.parse_args(arguments))
    del options["recipe"]
    if "batch_size" in options:
        options["batch_total"] = None  # the recipe's
    options = {"batch_size": PUBLIC_BATCH, "batch_total": None, **options}
    if options["use_adasum"] and options["gradient_predivide_factor"] != 1.0:
        parser.error("--gradient-predivide-factor works on averages; leave it out with --use-adasum")
    options["dataset"] = DATASETS[options["dataset"]]
    options["cuda"] = not options.pop("no_cuda")
    return Settings(**options)
