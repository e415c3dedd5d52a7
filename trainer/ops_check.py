"""Check that Horovod computes what it should between the processes at hand.

    horovodrun -np 2 -H one:1,two:1 python -m trainer.ops_check

Prints one line per check, and ends with exit code 1 where one is wrong. The last checks train with
DistributedOptimizer beside plain PyTorch with the batches of all processes: both must end alike.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import horovod.torch as hvd
import torch
import torch.nn.functional as F  # noqa: N812 (the name everybody knows it by)
from torch import Tensor, nn

Check = Callable[[int, int], bool]
CHECKS: dict[str, Check] = {}


def check(name: str) -> Callable[[Check], Check]:
    """Register a check: it gets rank and size, and returns whether this process saw what it should."""

    def register(function: Check) -> Check:
        CHECKS[name] = function
        return function

    return register


@check("allreduce, sum")
def allreduce_sum(rank: int, size: int) -> bool:
    """Add up a vector that differs per process."""
    mine = torch.arange(10, dtype=torch.float32) + rank
    return torch.equal(hvd.allreduce(mine, op=hvd.Sum), torch.arange(10.0) * size + sum(range(size)))


@check("allreduce, average")
def allreduce_average(rank: int, size: int) -> bool:
    """Average a vector that differs per process."""
    mine = torch.arange(10, dtype=torch.float32) + rank
    return torch.allclose(hvd.allreduce(mine), torch.arange(10.0) + sum(range(size)) / size)


@check("allreduce, other number types")
def allreduce_types(rank: int, size: int) -> bool:
    """Add up ones of every type that Horovod can; bfloat16 and bytes are not among them."""
    types = (torch.float16, torch.float64, torch.int32, torch.int64)
    return all(
        torch.equal(hvd.allreduce(torch.ones(5, dtype=kind), op=hvd.Sum), torch.full((5,), size, dtype=kind))
        for kind in types
    )


@check("allreduce, many at once")
def allreduce_fused(rank: int, size: int) -> bool:
    """Send twenty tensors without waiting, which Horovod packs together."""
    handles = [hvd.allreduce_async_(torch.ones(1000) * index, name=f"fused.{index}", op=hvd.Sum) for index in range(20)]
    return all(
        torch.equal(hvd.synchronize(handle), torch.ones(1000) * index * size) for index, handle in enumerate(handles)
    )


@check("allreduce, 32 MB")
def allreduce_large(rank: int, size: int) -> bool:
    """Send more than fits into any buffer at once."""
    result = hvd.allreduce(torch.full((8_000_000,), float(rank)), op=hvd.Sum)
    return bool((result == sum(range(size))).all())


@check("grouped allreduce")
def grouped_allreduce(rank: int, size: int) -> bool:
    """Reduce tensors of different shapes as one group."""
    parts = hvd.grouped_allreduce([torch.ones(2), torch.ones(3, 4)], op=hvd.Sum)
    return all(bool((part == size).all()) for part in parts) and parts[1].shape == (3, 4)


@check("allgather, uneven")
def allgather_uneven(rank: int, size: int) -> bool:
    """Gather blocks whose length differs per process."""
    whole = hvd.allgather(torch.full((rank + 1, 2), float(rank)))
    return torch.equal(whole, torch.cat([torch.full((other + 1, 2), float(other)) for other in range(size)]))


@check("broadcast")
def broadcast(rank: int, size: int) -> bool:
    """Spread a tensor from the first process and from the last."""
    mine = torch.full((3,), float(rank))
    return all(torch.equal(hvd.broadcast(mine, root), torch.full((3,), float(root))) for root in {0, size - 1})


@check("objects")
def objects(rank: int, size: int) -> bool:
    """Spread and gather Python objects."""
    mixed = None if rank == 0 else "a text"
    return (
        hvd.broadcast_object({"rank": rank}, 0) == {"rank": 0}
        and hvd.allgather_object(rank) == list(range(size))
        and hvd.allgather_object(mixed, name="mixed") == [None, *["a text"] * (size - 1)]
    )


@check("alltoall")
def alltoall(rank: int, size: int) -> bool:
    """Send something else to every process."""
    received, _ = hvd.alltoall(
        torch.arange(size, dtype=torch.float32) + 100 * rank, splits=torch.ones(size, dtype=torch.int32)
    )
    return received.tolist() == [float(100 * other + rank) for other in range(size)]


@check("barrier")
def barrier(rank: int, size: int) -> bool:
    """Meet."""
    hvd.barrier()
    return True


# ---------------------------------------------------------------- training


class SmallNet(nn.Module):
    """A convolution and a dense layer, without dropout: its training has no chance in it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, kernel_size=5)
        self.dense = nn.Linear(8 * 12 * 12, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Map images to the logarithms of class probabilities."""
        x = F.relu(F.max_pool2d(self.conv(x), 2))
        return F.log_softmax(self.dense(x.flatten(1)), dim=1)


def weights(model: nn.Module) -> Tensor:
    """Return all weights as one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def train_both_ways(rank: int, size: int, compression: type, predivide: float) -> float:
    """Return the largest difference in any weight after six steps, Horovod against one process."""
    torch.manual_seed(100 + rank)
    model = SmallNet()
    torch.manual_seed(100)
    alone = SmallNet()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    if not torch.equal(weights(model), weights(alone)):
        return float("inf")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=compression,
        gradient_predivide_factor=predivide,
    )
    plain = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    # Everybody draws the batches of all, and Horovod's side uses its own only.
    source = torch.Generator().manual_seed(5)
    for _ in range(6):
        images = torch.randn(size, 16, 1, 28, 28, generator=source)
        labels = torch.randint(0, 10, (size, 16), generator=source)
        optimizer.zero_grad()
        F.nll_loss(model(images[rank]), labels[rank]).backward()
        optimizer.step()
        plain.zero_grad()
        F.nll_loss(alone(images.flatten(0, 1)), labels.flatten()).backward()
        plain.step()
    difference = float((weights(model) - weights(alone)).abs().max())
    # Also between the processes: after equal steps nobody may have drifted.
    return max(hvd.allgather_object(difference))


@check("training equals one process")
def training(rank: int, size: int) -> bool:
    """Train with plain gradients."""
    return train_both_ways(rank, size, hvd.Compression.none, 1.0) < 1e-5


@check("training equals one process, divided before the sum")
def training_predivided(rank: int, size: int) -> bool:
    """Train with gradients that are divided in two goes."""
    return train_both_ways(rank, size, hvd.Compression.none, 2.0) < 1e-5


@check("training nearly equals one process, 16 bits")
def training_fp16(rank: int, size: int) -> bool:
    """Train with gradients sent with 16 bits."""
    return train_both_ways(rank, size, hvd.Compression.fp16, 1.0) < 2e-3


def main() -> int:
    """Run all checks; every process learns the verdict of all."""
    hvd.init()
    torch.set_num_threads(1)
    rank, size = hvd.rank(), hvd.size()
    wrong = 0
    for name, function in CHECKS.items():
        verdicts = hvd.allgather_object(function(rank, size), name="verdicts")
        failed = [other for other, good in enumerate(verdicts) if not good]
        wrong += bool(failed)
        if rank == 0:
            print(f"WRONG {name}: on rank {', '.join(map(str, failed))}" if failed else f"ok {name}", flush=True)
    if rank == 0:
        print(f"{len(CHECKS) - wrong} of {len(CHECKS)} checks passed on {size} processes", flush=True)
    hvd.barrier()
    hvd.shutdown()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
