"""What this client saw ready is known by the container's id, and by nothing less."""

from __future__ import annotations

import pytest
from clusters import cluster_of

from hvdcompose.hosts.keys import state_folder
from hvdcompose.hosts.observed import Container, Observed
from hvdcompose.hosts.proofs import load_proofs, save_proofs, with_proofs

CLUSTER = cluster_of()
WORKER = Container("c1", "demo-worker-1", "running", "Up 1 second (health: starting)", "im", "worker")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    state_folder(CLUSTER).mkdir(parents=True)
    return state_folder(CLUSTER)


def test_what_was_seen_is_kept_host_by_host(folder):
    assert load_proofs(CLUSTER) == {}
    save_proofs(CLUSTER, {"beta": "c1", "gamma": "c2"})
    save_proofs(CLUSTER, {"gamma": "c3"})
    assert load_proofs(CLUSTER) == {"beta": "c1", "gamma": "c3"}
    assert [path.name for path in folder.iterdir()] == ["proved"]


@pytest.mark.parametrize("text", ["", "{", "[]", '"c1"'])
def test_what_cannot_be_read_proves_nothing(folder, text):
    (folder / "proved").write_text(text)
    assert load_proofs(CLUSTER) == {}


@pytest.mark.parametrize(("host", "proofs", "proved"), [
    ("beta", {"beta": "c1"}, True),
    ("beta", {"beta": "c0"}, False),
    ("beta", {"gamma": "c1"}, False),
    ("beta", {}, False),
])  # fmt: skip
def test_another_container_of_that_name_is_not_proved(host, proofs, proved):
    marked = with_proofs({host: Observed((WORKER,), (WORKER,))}, proofs)
    assert marked[host].containers[0].proved is proved
    assert marked[host].others == (WORKER,)
