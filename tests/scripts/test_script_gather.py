"""What the launcher brings together at the end: records and logs of every host, in bounded time."""

from __future__ import annotations

import time

import hvdgather
from script_settings import SETTINGS


def test_records_are_read_line_by_line():
    texts = [
        '{"rank": 0, "code": 0}\n{"rank": 2, "code": 3}\n',
        'motd\n1796130733.5\n{"rank": 1, "code"\n\n5\nnull\n"x"\n[1]\n{"rank": null, "code": 0}\n{"code": 0}\n',
        "",
        '{"rank": 1, "code": -9}',
    ]
    assert hvdgather.read_records(texts) == {
        0: {"rank": 0, "code": 0},
        1: {"rank": 1, "code": -9},
        2: {"rank": 2, "code": 3},
    }


def test_records_come_from_every_host_and_who_is_silent_is_known(worker, tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "rank-0.json").write_text('{"rank": 0}\n')
    (folder / "rank-1.json.part").write_text('{"rank": 9')
    (folder / "run.json").write_text('{"rank": 8}\n')
    worker("10.0.0.2", 'echo "$2" > asked; date +%s.%N; echo \'{"rank": 2}\'\n')
    worker("10.0.0.3", "exit 255\n")
    found = hvdgather.gather(SETTINGS, str(folder), 0.1)
    assert found == ([{"rank": 0}, {"rank": 2}], ["gamma"], {})
    assert (tmp_path / "asked").read_text() == f"date +%s.%N; cat {folder}/rank-*.json\n"


def test_a_host_without_records_has_answered(worker, tmp_path):
    worker("10.0.0.2", "date +%s; echo 'cat: no such file' >&2; exit 1\n")
    worker("10.0.0.3", "exec sleep 60\n")
    assert hvdgather.gather(SETTINGS, str(tmp_path), 0.1) == ([], ["gamma"], {})


def test_clocks_that_differ_are_noticed(worker, tmp_path):
    worker("10.0.0.2", "expr $(date +%s) - 100\n")
    worker("10.0.0.3", "echo %s.%N\n")  # a date that does not know the format
    skew = hvdgather.gather(SETTINGS, str(tmp_path), 0.1).skew
    assert list(skew) == ["beta"]
    assert -102 < skew["beta"] < -98


def test_records_are_waited_for_a_little_and_no_longer(worker, tmp_path):
    worker("10.0.0.2", "echo x >> tries; [ $(wc -l < tries) -lt 2 ] || echo '{\"rank\": 2}'\n")
    worker("10.0.0.3", "exec sleep 60\n")
    begin = time.monotonic()
    found = hvdgather.gather(SETTINGS, str(tmp_path), 0.5)
    assert [entry["rank"] for entry in found.ranks] in ([], [2])
    assert time.monotonic() - begin < 20
    worker("10.0.0.3", "for rank in 0 1 3; do echo '{\"rank\": '$rank'}'; done\n")
    found = hvdgather.gather(SETTINGS, str(tmp_path), 0.5)
    assert ([entry["rank"] for entry in found.ranks], found.silent) == ([0, 1, 2, 3], [])


def test_the_workers_logs_are_fetched_from_those_that_answer(worker, tmp_path):
    worker("10.0.0.2", 'echo "$2"\n')
    worker("10.0.0.3", "touch asked; echo x\n")
    hvdgather.fetch_worker_logs(SETTINGS, str(tmp_path), 12.345, ["gamma"], 10)
    assert (tmp_path / "worker-beta.log").read_text() == "/hvd/worker log 12.3 50\n"
    assert not (tmp_path / "asked").exists() and not (tmp_path / "worker-gamma.log").exists()


def test_a_log_that_does_not_come_costs_little(worker, tmp_path):
    worker("10.0.0.2", "exec sleep 60\n")
    worker("10.0.0.3", "exit 255\n")
    begin = time.monotonic()
    hvdgather.fetch_worker_logs(SETTINGS, str(tmp_path), 1, [], 0.5)
    assert time.monotonic() - begin < 20
    assert not list(tmp_path.glob("worker-*"))
