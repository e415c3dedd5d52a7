"""What the GPUs that a host was seen to have say about its slots."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hvdcompose.config.model import Gpus, Host
from hvdcompose.deploy.preflight import _refuse_uncounted
from hvdcompose.errors import Refused


def host(kind: str = "all", **more) -> Host:
    return Host(**{"name": "alpha", "context": "c", "address": "10.0.0.1", "gpus": Gpus(kind=kind), "slots": 1, **more})


def refuse(found: Host, counted: int) -> None:
    _refuse_uncounted(SimpleNamespace(host={"alpha": found}.__getitem__), {"alpha": counted})


REFUSED = [
    (host(), 2, "`gpus: all` gives 2 GPUs, and `slots` does not say how many ranks use them"),
    (host(slots=4, slots_given=True), 2, "4 slots but only 2 GPUs there"),
    (host(slots=2, slots_given=True), 1, "2 slots but only 1 GPU there"),
]


@pytest.mark.parametrize(("found", "counted", "told"), REFUSED)
def test_refused(found, counted, told):
    with pytest.raises(Refused) as caught:
        refuse(found, counted)
    assert caught.value.message == f"hosts.alpha: {told}"
    assert caught.value.hint == f"hosts.alpha: slots: {counted}"


TAKEN = [
    (host(), 1),
    (host(), 0),
    (host(slots=4, slots_given=True), 4),
    (host(slots=1, slots_given=True), 4),
    (host(slots=4, slots_given=True), 0),  # no nvidia-smi in the image: not counted
    (host("none", slots=4, slots_given=True), 1),
]


@pytest.mark.parametrize(("found", "counted"), TAKEN)
def test_taken(found, counted):
    refuse(found, counted)
