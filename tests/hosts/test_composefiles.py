"""The rendered files on the client: whose they are, written whole or not at all."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml
from clusters import TWO, cluster_of

from hvdcompose.errors import UsageError
from hvdcompose.hosts import composefiles
from hvdcompose.hosts.composefiles import Rendered
from hvdcompose.stack.plan import plan_hosts
from hvdcompose.stack.render import render

TEXTS = {plan.host: render(plan) for plan in plan_hosts(cluster_of())}
OTHER = {plan.host: render(plan) for plan in plan_hosts(cluster_of(TWO.replace("demo", "other")))}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "compose"


def on_disk(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_a_file_per_host(root):
    composefiles.write_all(root, "demo", TEXTS)
    assert on_disk(root) == {"alpha/compose.yaml": TEXTS["alpha"], "beta/compose.yaml": TEXTS["beta"]}
    assert stat.S_IMODE((root / "alpha" / "compose.yaml").stat().st_mode) == 0o644


def test_an_unchanged_file_is_not_touched(root):
    composefiles.write_all(root, "demo", TEXTS)
    before = (root / "alpha" / "compose.yaml").stat()
    composefiles.write_all(root, "demo", TEXTS)
    after = (root / "alpha" / "compose.yaml").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_file_of_the_cluster_is_replaced(root):
    composefiles.write_all(root, "demo", {"alpha": TEXTS["alpha"].replace("trainer:1", "trainer:0")})
    composefiles.write_all(root, "demo", TEXTS)
    assert on_disk(root)["alpha/compose.yaml"] == TEXTS["alpha"]


FOREIGN = [
    pytest.param("services: {}\n", "somebody else", id="by hand"),
    pytest.param("", "somebody else", id="empty"),
    pytest.param(OTHER["beta"], "cluster other", id="of another cluster"),
    pytest.param(f"# mine\n{TEXTS['beta']}", "somebody else", id="ours, edited at the top"),
]


@pytest.mark.parametrize(("text", "whose"), FOREIGN)
def test_a_file_of_somebody_else_is_never_overwritten(text, whose, root):
    path = root / "beta" / "compose.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        composefiles.write_all(root, "demo", TEXTS)
    assert caught.value.message == f"{path} belongs to {whose}: it is not overwritten"
    assert caught.value.hint == "give each cluster.yaml a folder of its own, or move that file away"
    assert on_disk(root) == {"beta/compose.yaml": text}, "and nothing was written before it was seen"


def test_all_files_of_somebody_else_are_named(root):
    composefiles.write_all(root, "other", OTHER)
    with pytest.raises(UsageError) as caught:
        composefiles.write_all(root, "demo", TEXTS)
    assert caught.value.message.splitlines() == [
        f"{root / host / 'compose.yaml'} belongs to cluster other: it is not overwritten" for host in ("alpha", "beta")
    ]


def test_stale_files(root):
    assert composefiles.stale(root, TEXTS) == ["alpha", "beta"]
    composefiles.write_all(root, "demo", TEXTS)
    assert composefiles.stale(root, TEXTS) == []
    (root / "beta" / "compose.yaml").write_text(TEXTS["beta"] + "\n")
    assert composefiles.stale(root, TEXTS) == ["beta"]


def test_a_write_that_fails_leaves_the_old_file(root, monkeypatch):
    composefiles.write_all(root, "demo", TEXTS)

    def fail(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    path = root / "alpha" / "compose.yaml"
    with pytest.raises(UsageError, match=r"cannot write .*compose\.yaml: No space left on device"):
        composefiles.write_text(path, "new")
    assert on_disk(root) == {"alpha/compose.yaml": TEXTS["alpha"], "beta/compose.yaml": TEXTS["beta"]}


def test_what_stands_in_the_way_is_told(root):
    root.mkdir()
    (root / "alpha").write_text("a file where a folder should be")
    with pytest.raises(UsageError, match=r"cannot read .*compose\.yaml: Not a directory"):
        composefiles.write_all(root, "demo", TEXTS)
    (root / "alpha").unlink()
    (root / "alpha" / "compose.yaml").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"cannot read .*compose\.yaml: Is a directory"):
        composefiles.write_all(root, "demo", TEXTS)


def test_a_file_that_is_no_text_is_told(root):
    path = root / "alpha" / "compose.yaml"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"cannot read .*compose\.yaml: .*utf-8"):
        composefiles.write_all(root, "demo", TEXTS)


def test_the_cluster_s_files_are_found_by_their_header(root):
    composefiles.write_all(root, "demo", TEXTS)
    (root / "gamma").mkdir()
    (root / "gamma" / "compose.yaml").write_text(OTHER["beta"])
    (root / "mine").mkdir()
    (root / "mine" / "compose.yaml").write_text("services: {}\n")
    (root / "empty").mkdir()
    assert composefiles.rendered(root, "demo") == [
        Rendered("alpha", "alpha"),
        Rendered("beta", "beta"),
    ]
    assert composefiles.rendered(root / "nowhere", "demo") == []


def test_the_context_of_a_host_that_left_is_still_known(root):
    text = render(plan_hosts(cluster_of(TWO.replace("beta: {", "beta: {context: rack-2, ")))[1])
    composefiles.write_all(root, "demo", {"beta": text})
    assert composefiles.rendered(root, "demo") == [Rendered("beta", "rack-2")]


def test_removing_a_host_removes_only_what_we_wrote(root):
    composefiles.write_all(root, "demo", TEXTS)
    composefiles.write_env(root, "alpha", {"HVD_KEYS": "k"})
    composefiles.write_command(root, "alpha", ["true"])
    (root / "beta" / "notes.txt").write_text("mine")
    composefiles.remove_host(root, "alpha")
    composefiles.remove_host(root, "beta")
    composefiles.remove_host(root, "gone")
    assert not (root / "alpha").exists()
    assert on_disk(root) == {"beta/notes.txt": "mine"}


def test_the_variables_stand_beside_the_file(root):
    composefiles.write_env(root, "alpha", {"HVD_RUN": "20260101-000000-abc", "HVD_CODE": "c1", "HVD_LAUNCH": ""})
    path = root / "alpha" / ".env"
    assert path.read_text().splitlines()[1:] == ["HVD_CODE=c1", "HVD_LAUNCH=", "HVD_RUN=20260101-000000-abc"]
    assert path.read_text().startswith("# written by hvdcompose apply")


def test_another_command_for_one_run(root):
    composefiles.write_command(root, "alpha", ["horovodrun", "sh", "-c", "echo $HOME"])
    document = yaml.safe_load((root / "alpha" / ".command.yaml").read_text())
    assert document == {"services": {"launcher": {"command": ["horovodrun", "sh", "-c", "echo $$HOME"]}}}
