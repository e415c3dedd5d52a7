"""What a run wrote may carry any name: nothing of it is written outside of the folder it is brought to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdcompose.deploy.arrivals import newest, part_of, refusal
from hvdcompose.hosts.output import Remote


@pytest.mark.parametrize("path", ["a", "a/b.pt", "..a", "a..", "...", "-o", "a\nb", "caf\udce9", " "])
def test_names_that_stay(path):
    assert refusal(Remote(path)) == ""


@pytest.mark.parametrize("path", ["", ".", "..", "../a", "a/../b", "/etc/passwd", "a//b", "a/", "./a", "a\0"])
def test_names_that_lead_out(path):
    assert refusal(Remote(path)) == "its name leads out of the folder"


@pytest.mark.parametrize(
    ("path", "target"),
    [("latest", "epoch-3"), ("a/latest", "../b"), ("a/b/c", "../../d/e"), ("a", "b/c")],
)
def test_links_that_stay(path, target):
    assert refusal(Remote(path, link=target)) == ""


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("a", "/data"),
        ("a", ".."),
        ("a", "../b"),
        ("a/b", "../../c"),
        ("a", "b/../c"),
        ("a", ""),
        ("a/b", "../.."),
        ("a", "."),
    ],
)
def test_links_that_lead_out(path, target):
    assert refusal(Remote(path, link=target)).startswith("a link that leads out of the folder")


NAMES = st.sampled_from(["a", "b", ".."])


@given(
    st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.lists(NAMES, max_size=4).map("/".join))
)
def test_links_through_links_stay_too(tmp_path_factory, links):
    """On a real disk: whatever links are let in together, each leads to a place below the folder."""
    root = tmp_path_factory.mktemp("links").resolve() / "in"
    root.mkdir()
    kept = [path for path, target in links.items() if not refusal(Remote(path, link=target))]
    made: list[Path] = []
    for path in sorted(kept, key=lambda path: path.count("/"), reverse=True):
        at = root / path
        at.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(at):
            at.symlink_to(links[path])
            made.append(at)
    for at in made:
        try:
            real = at.resolve(strict=False)
        except (OSError, RuntimeError):
            continue  # links in a circle
        assert real.is_relative_to(root), (links, at, real)


def test_what_cannot_be_read_is_told():
    assert refusal(Remote("a", fault="Input/output error")) == "Input/output error"
    assert refusal(Remote("a", odd="neither a file nor a link")) == "neither a file nor a link"


def test_a_file_that_is_called_like_another_s_part():
    assert part_of("a", {"a", "b"}) == "a.part"
    assert part_of("a", {"a", "a.part"}) == "a.part.part"


def test_the_newest_run_is_first():
    runs = ["20261201-100838-32c", "by-hand-20261203-000000", "20261202-000000-fff"]
    assert newest(runs) == [runs[1], runs[2], runs[0]]
