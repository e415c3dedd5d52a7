"""Which host a shared stream goes on without, and how far a host is, in words."""

from __future__ import annotations

import pytest

from hvdcompose.hosts.transfer import SLOWER, Stand, duration, given_up, percent, pulled, seconds_left, shown

GB = 1_000_000_000
STAYS = [
    # stand, seconds since the first byte
    pytest.param(Stand(GB // 2), 10.0, id="it takes"),
    pytest.param(Stand(GB // 2, idle=29.0, held=2.0), 60.0, id="a disk that flushes"),
    pytest.param(Stand(GB // 100, held=4.9), 5.0, id="too early to tell"),
    pytest.param(Stand(GB // 100, held=20.0), 41.0, id="the others wait for it less than half of the time"),
    pytest.param(Stand(GB // 2, held=20.0), 25.0, id="soon over: 25 s are left"),
    pytest.param(Stand(GB + GB // 10, held=20.0), 25.0, id="more than was expected: soon over"),
]
LEAVES = [
    pytest.param(Stand(GB // 2, idle=30.1), 40.0, "nothing moved for 30 s", id="it takes nothing"),
    pytest.param(Stand(0, idle=30.1), 30.1, "nothing moved for 30 s", id="it never took anything"),
    pytest.param(Stand(GB // 10, held=5.1), 6.0, SLOWER, id="54 s are left, and the others wait"),
]


@pytest.mark.parametrize(("stand", "seconds"), STAYS)
def test_who_stays_in_a_shared_stream(stand, seconds):
    assert given_up(stand, shared=True, size=GB, seconds=seconds) is None


@pytest.mark.parametrize(("stand", "seconds", "why"), LEAVES)
def test_who_leaves_a_shared_stream(stand, seconds, why):
    assert given_up(stand, shared=True, size=GB, seconds=seconds) == why


def test_alone_nobody_waits():
    assert given_up(Stand(GB // 10, held=500.0), shared=False, size=GB, seconds=600.0) is None
    assert given_up(Stand(GB // 10, idle=59.0), shared=False, size=GB, seconds=60.0) is None
    assert given_up(Stand(GB // 10, idle=60.1), shared=False, size=GB, seconds=70.0) == "nothing moved for 60 s"


def test_the_time_left():
    assert seconds_left(GB // 4, GB, 10.0) == 30.0
    assert seconds_left(0, GB, 10.0) is None
    assert seconds_left(GB // 4, GB, 0.0) is None
    assert seconds_left(GB, GB, 10.0) is None, "the image takes more than it was thought to: nothing is known"


@pytest.mark.parametrize(
    ("sent", "size", "seconds", "text"),
    [
        (128_000_000, 512_000_000, 8.0, "image 128 of 512 MB, 25 %, 16 MB/s, 24 s left"),
        (1_500_000_000, 6_000_000_000, 60.0, "image 1.50 of 6.00 GB, 25 %, 25 MB/s, 3 min 0 s left"),
        (0, 512_000_000, 0.0, "image 0 of 512 MB, 0 %"),
        (520_000_000, 512_000_000, 10.0, "image 520.0 MB sent, the host unpacks the rest"),
    ],
)
def test_how_far_a_host_is(sent, size, seconds, text):
    assert shown(sent, size, seconds) == text


def test_the_share_is_never_whole_before_the_end():
    assert [percent(sent, 200) for sent in (0, 1, 100, 199, 200, 300)] == [0, 0, 50, 99, 99, 99]
    assert percent(100, 0) == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (130, "2 min 10 s"),
        (3599.7, "1 h 0 min"),
        (3900, "1 h 5 min"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_the_layers_of_a_pull():
    layers: dict[str, bool] = {}
    lines = [
        ("latest: Pulling from library/debian", None),
        ("0123456789ab: Pulling fs layer", ("image 0 of 1 layers", 0)),
        ("ba9876543210: Already exists", ("image 1 of 2 layers", 50)),
        ("0123456789ab: Verifying Checksum", ("image 1 of 2 layers", 50)),
        ("0123456789ab: Download complete", ("image 1 of 2 layers", 50)),
        ("0123456789ab: Pull complete", ("image 2 of 2 layers", 100)),
        ("Digest: sha256:0123456789ab", None),
        ("Status: Downloaded newer image for debian:latest", None),
        ("", None),
    ]
    for line, told in lines:
        assert pulled(layers, line) == told
