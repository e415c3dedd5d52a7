"""Train the public Horovod MNIST example's network, on one process or on many.

    python -m trainer.mnist --epochs 1
    horovodrun -np 4 -H one:2,two:2 python -m trainer.mnist --epochs 10

Comments that begin with `Horovod:` mark what distribution adds to a training for one process.
The GPU path (`--no-cuda` turns it off) follows the public example; it has not been run on a GPU yet.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch
import torch.nn.functional as F  # noqa: N812 (the name everybody knows it by)
from torch import Tensor, nn

from trainer.data import IMAGE_SIDE, TEST, TRAIN, DataError, Dataset, Split, load_split, prepare
from trainer.settings import Settings, learning_rate, parse_settings
from trainer.together import choose_device, end_together, say, shard, start, write_whole


class Net(nn.Module):
    """Two convolutions and two dense layers, as in the public example: 21,840 weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.conv2_drop = nn.Dropout2d()
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Map images to the logarithms of class probabilities."""
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = F.relu(self.fc1(x.flatten(1)))
        x = F.dropout(x, training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


class Images:
    """A split of the data in memory, kept as bytes on the device and normalised batch by batch.

    One indexed read per batch replaces a data loader: decoding image by image costs more than the network.
    """

    def __init__(self, split: Split, dataset: Dataset, device: torch.device, limit: int | None) -> None:
        self.count = split.count if limit is None else min(limit, split.count)
        pixels = torch.frombuffer(split.pixels, dtype=torch.uint8).view(-1, IMAGE_SIDE, IMAGE_SIDE, 1)
        labels = torch.frombuffer(split.labels, dtype=torch.uint8)
        self._pixels = pixels[: self.count].to(device)
        self._labels = labels[: self.count].to(device, torch.long)
        self._mean = 255 * dataset.mean
        self._deviation = 255 * dataset.deviation

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the images with these indices, normalised, and their labels."""
        images = self._pixels[indices].float().sub_(self._mean).div_(self._deviation)
        # Channels last in memory, as `memory_format=torch.channels_last` has them, which for a single channel has no
        # effect: convolutions of so few channels then take a third less time on a CPU. (Weights in that format, the
        # usual way, are refused by Horovod.)
        return images.permute(0, 3, 1, 2), self._labels[indices]


@dataclass(frozen=True)
class Training:
    """Everything that `fit` and `validate` work with."""

    settings: Settings
    device: torch.device
    train: Images
    test: Images
    model: nn.Module
    optimizer: Any
    """A torch optimizer, wrapped by Horovod."""
    peak_lr: float
    batch_size: int
    """Images per step of this process."""


@dataclass
class Spent:
    """What one process did, and where its time went, in seconds."""

    steps: int = 0
    images: int = 0
    training: float = 0.0
    waiting: float = 0.0
    """Of the training: until the gradients of all processes were there."""
    testing: float = 0.0


def setup_data(settings: Settings, device: torch.device) -> tuple[Images, Images]:
    """Load both splits, prepared first where they are not: by one process per host, while the others wait."""
    data_dir = settings.data_dir or Path("data")
    dataset = settings.dataset

    def tell(line: str) -> None:
        if hvd.local_rank() == 0:
            print(line, file=sys.stderr, flush=True)

    done = prepare(dataset, data_dir, create=settings.data_dir is None, say=tell)
    if done.source:
        print(f"{dataset.name}: prepared in {done.folder} from {done.source}", file=sys.stderr, flush=True)
    limit = settings.limit
    test_limit = None if limit is None else max(1, limit // 6)
    return (
        Images(load_split(dataset, data_dir, TRAIN), dataset, device, limit),
        Images(load_split(dataset, data_dir, TEST), dataset, device, test_limit),
    )


def check_adasum(settings: Settings, device: torch.device) -> None:
    """Refuse Adasum where Horovod would fail in the first step."""
    size = hvd.size()
    if not settings.use_adasum or size == 1:
        return
    if size & (size - 1):
        raise DataError(f"--use-adasum works on 2, 4, 8, ... processes, not on {size}")
    if not hvd.mpi_enabled() and not (device.type == "cuda" and hvd.nccl_built()):
        raise DataError("--use-adasum needs MPI on the CPU: start with `horovodrun --mpi`")


def check_save(path: Path | None) -> None:
    """Find out before the training, not after it, that its result cannot be kept."""
    if path is None or hvd.rank() != 0:
        return
    if not path.parent.is_dir():
        raise DataError(f"--save {path}: {path.parent} is no folder")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise DataError(f"--save {path}: cannot be written")


def share_batch(settings: Settings) -> int:
    """Return the images per step of each process. Raises DataError where they cannot be shared out evenly."""
    if settings.batch_total is None:
        return settings.batch_size
    if settings.batch_total % hvd.size():
        raise DataError(
            f"--batch-total {settings.batch_total} cannot be shared out to {hvd.size()} processes evenly; "
            f"try {-(-settings.batch_total // hvd.size()) * hvd.size()}"
        )
    return settings.batch_total // hvd.size()


def scale_lr(settings: Settings, device: torch.device) -> float:
    """Return the learning rate for the whole of the processes."""
    if settings.batch_total is not None:
        return settings.lr  # the batch does not grow, so neither does the rate
    # Horovod: the batch grows with the number of processes, and the rate with it. Adasum scales by itself,
    # except that within a host its GPUs are averaged first.
    if not settings.use_adasum:
        return settings.lr * hvd.size()
    if device.type == "cuda" and hvd.nccl_built():
        return settings.lr * hvd.local_size()
    return settings.lr


def new_optimizer(settings: Settings, model: nn.Module, lr: float) -> Any:
    """Build the optimizer, wrapped so that its steps use the gradients of all processes."""
    optimizer: torch.optim.Optimizer
    if settings.optimizer == "adam":
        optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=settings.weight_decay, fused=True)
    else:
        optimizer = torch.optim.SGD(
            model.parameters(), lr=lr, momentum=settings.momentum, weight_decay=settings.weight_decay, fused=True
        )
    # Horovod: everybody starts from rank 0's weights and optimizer state.
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    # Horovod: gradients are combined over all processes before each step, all in one message: for so small a
    # network the number of messages costs more than their size.
    return hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if settings.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if settings.use_adasum else hvd.Average,
        gradient_predivide_factor=settings.gradient_predivide_factor,
        groups=None if settings.use_adasum else 1,
    )


def setup(settings: Settings) -> Training:
    """Build everything a training needs; all processes succeed, or all end with one message."""
    problem: str | None = None
    try:
        device = choose_device(settings.cuda, settings.seed)
        check_adasum(settings, device)
        check_save(settings.save)
        batch_size = share_batch(settings)
        train, test = setup_data(settings, device)
    except DataError as error:
        problem = str(error)
    end_together(problem)

    torch.manual_seed(settings.seed)
    model = Net().to(device)
    lr = scale_lr(settings, device)
    return Training(settings, device, train, test, model, new_optimizer(settings, model, lr), lr, batch_size)


def take_step(training: Training, spent: Spent) -> None:
    """Change the weights by the gradients of all processes."""
    optimizer, computed = training.optimizer, time.perf_counter()
    if training.settings.use_adasum and hvd.size() > 1:
        optimizer.step()  # Adasum combines steps, not gradients: its waiting cannot be told apart
        spent.waiting += time.perf_counter() - computed
        return
    # Horovod: wait for the gradients of the others. `step` alone would do so as well; here it is timed.
    optimizer.synchronize()
    spent.waiting += time.perf_counter() - computed
    with optimizer.skip_synchronize():
        optimizer.step()


def fit(training: Training, epoch: int, spent: Spent) -> None:
    """Train for one epoch."""
    began = time.perf_counter()
    settings, optimizer = training.settings, training.optimizer
    # Horovod: each process trains on its own share of the images.
    indices = shard(training.train.count, epoch, settings.seed, hvd.rank(), hvd.size()).to(training.device)
    batches = indices.split(training.batch_size)
    training.model.train()
    for step, batch in enumerate(batches):
        images, labels = training.train.batch(batch)
        rate = learning_rate(
            settings.lr_schedule,
            training.peak_lr,
            (epoch - 1) * len(batches) + step,
            settings.epochs * len(batches),
        )
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = F.nll_loss(training.model(images), labels)
        loss.backward()
        take_step(training, spent)
        if step % settings.log_interval == 0 and hvd.rank() == 0:
            done, share = step * training.batch_size, 100 * step / len(batches)
            say(f"Train Epoch: {epoch} [{done}/{len(indices)} ({share:.0f}%)]\tLoss: {loss.item():.6f}")
    spent.steps += len(batches)
    spent.images += len(indices)
    spent.training += time.perf_counter() - began


def validate(training: Training, spent: Spent) -> tuple[float, float]:
    """Return the average loss and the share of right answers over the whole test set."""
    began = time.perf_counter()
    # Horovod: each process tests its own share of the images.
    indices = torch.arange(hvd.rank(), training.test.count, hvd.size(), device=training.device)
    sums = torch.zeros(2, dtype=torch.float64)
    training.model.eval()
    with torch.no_grad():
        for batch in indices.split(training.settings.test_batch_size) if len(indices) else ():
            images, labels = training.test.batch(batch)
            output = training.model(images)
            sums[0] += F.nll_loss(output, labels, reduction="sum").item()
            sums[1] += (output.argmax(dim=1) == labels).sum().item()
    # Horovod: sums over all processes give the exact average, also when their shares differ in size.
    loss, right = (hvd.allreduce(sums, op=hvd.Sum, name="test") / training.test.count).tolist()
    spent.testing += time.perf_counter() - began
    return loss, right


def save_weights(path: Path, model: nn.Module) -> None:
    """Write the weights whole or not at all; raise DataError where that fails."""
    weights = {name: value.cpu() for name, value in model.state_dict().items()}
    try:
        write_whole(path, lambda file: torch.save(weights, file))
    except (OSError, RuntimeError) as error:
        raise DataError(f"--save {path}: {error}") from error


def result_of(training: Training, spent: Spent, first_step_at: float) -> dict[str, object]:
    """Return what the run took, for its last line; all processes call it together. Times in seconds."""
    settings = training.settings
    # Horovod: everybody's times, in the order of the ranks.
    times = hvd.allgather_object((spent.training - spent.waiting, spent.waiting), name="times")
    return {
        "dataset": settings.dataset.name,
        "np": hvd.size(),
        "epochs": settings.epochs,
        "train_seconds": round(spent.training, 3),
        "test_seconds": round(spent.testing, 3),
        "first_step_at": round(first_step_at, 3),
        "steps": spent.steps,
        "images_per_second": round(spent.images * hvd.size() / spent.training, 1),
        "compute_seconds": [round(compute, 3) for compute, _ in times],
        "communication_seconds": [round(waiting, 3) for _, waiting in times],
        "batch_size": training.batch_size,
        "lr": settings.lr,
        "seed": settings.seed,
        "device": training.device.type,
        "torch": torch.__version__,
    }


def train(training: Training, spent: Spent) -> tuple[float, float]:
    """Run all epochs and return the last test's average loss and share of right answers."""
    loss = accuracy = math.nan
    for epoch in range(1, training.settings.epochs + 1):
        fit(training, epoch, spent)
        loss, accuracy = validate(training, spent)
        say(f"Test set: Average loss: {loss:.4f}, Accuracy: {100 * accuracy:.2f}%")
        if not math.isfinite(loss):
            end_together(f"the training diverged in epoch {epoch}: the loss is {loss}; try a smaller --lr")
    return loss, accuracy


def keep_weights(training: Training) -> None:
    """Have rank 0 write the weights where they were asked for; where that fails, all end with one message."""
    problem: str | None = None
    path = training.settings.save
    if path is not None and hvd.rank() == 0:
        try:
            save_weights(path, training.model)
        except DataError as error:
            problem = str(error)
    end_together(problem)


def main(settings: Settings) -> None:
    """Run the whole training and print its result as one line of JSON."""
    started = time.perf_counter()
    start()
    training = setup(settings)
    say(
        f"{settings.dataset.name}: {training.train.count} training and {training.test.count} test images, "
        f"{hvd.size()} x {training.device.type}, batch {training.batch_size} each"
    )
    spent, first_step_at = Spent(), time.time()
    loss, accuracy = train(training, spent)
    keep_weights(training)
    result = result_of(training, spent, first_step_at)
    seconds = time.perf_counter() - started
    say(json.dumps({**result, "accuracy": round(accuracy, 6), "loss": round(loss, 6), "seconds": round(seconds, 3)}))
    hvd.shutdown()


if __name__ == "__main__":
    try:
        main(parse_settings())
    except KeyboardInterrupt:
        sys.exit(130)
