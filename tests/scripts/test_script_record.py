"""The record of a run: what is in it from the start, what its end adds, and how long records are kept."""

from __future__ import annotations

import json
import subprocess

import hvdrecord
import pytest
from script_settings import SETTINGS

WORDS = ["horovodrun", "-np", "4", "/hvd/rank", "python", "t.py"]


@pytest.fixture(autouse=True)
def variables(monkeypatch):
    for name, value in {"RUN": "r1", "LAUNCH": "l1", "IMAGE": "i1", "CODE": "c1"}.items():
        monkeypatch.setenv(f"HVD_{name}", value)


def test_a_record_is_there_from_the_start_and_whole_at_the_end(tmp_path, monkeypatch):
    record = hvdrecord.new_record(SETTINGS, WORDS, str(tmp_path))
    path = tmp_path / "records" / "r1.json"
    first = json.loads(path.read_text())
    begin = first.pop("begin")
    assert begin > 1.7e9
    assert first == {
        **{"version": 1, "run": "r1", "launch": "l1", "command": WORDS, "train_command": ["python", "t.py"], "np": 4},
        **{"hosts": ["alpha", "alpha", "beta", "gamma"], "image": "i1", "code_digest": "c1"},
        **{"end": None, "code": None, "real": None, "user": None, "sys": None},
        **{"ranks": [], "metrics": None, "cause": None, "prepare": {}},
    }
    assert not (tmp_path / "launched").exists(), "nothing was launched yet"
    record.launched()
    assert json.loads((tmp_path / "launched" / "l1").read_text()) == {"run": "r1"}
    record.told["ranks"] = [{"rank": 0, "code": 0}]
    record.finish(0, {"accuracy": 0.9})
    last = json.loads(path.read_text())
    assert last["end"] >= begin
    assert {key: last[key] for key in ("run", "code", "ranks", "metrics")} == {
        **{"run": "r1", "code": 0, "ranks": [{"rank": 0, "code": 0}], "metrics": {"accuracy": 0.9}},
    }


def test_a_command_of_its_own_is_no_launch_of_the_cluster_s(tmp_path, monkeypatch):
    monkeypatch.setenv("HVD_LAUNCH", "")
    hvdrecord.new_record(SETTINGS, WORDS, str(tmp_path)).launched()
    assert not (tmp_path / "launched").exists()


def test_started_by_hand_a_run_has_a_name_of_its_own(tmp_path, monkeypatch):
    monkeypatch.delenv("HVD_RUN")
    assert hvdrecord.new_record(SETTINGS, WORDS, str(tmp_path)).run.startswith("by-hand-20")


def test_what_ranks_of_the_same_run_left_before_is_removed(tmp_path):
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1" / "rank-0.json").write_text("{}")
    hvdrecord.new_record(SETTINGS, WORDS, str(tmp_path))
    assert list((tmp_path / "r1").iterdir()) == []


def test_the_newest_runs_are_kept(tmp_path):
    (tmp_path / "records").mkdir()
    # by when they began, whatever their names
    for name, begin in {"by-hand-1": 5, "r3": 3, "a2": 2, "r1": 9, "no-begin": None}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "launcher.log").write_text("x")
        (tmp_path / "records" / f"{name}.json").write_text(json.dumps({"begin": begin}))
    (tmp_path / "launched").mkdir()
    hvdrecord.new_record({**SETTINGS, "keep": 3}, WORDS, str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["by-hand-1", "launched", "r1", "r3", "records"]
    assert sorted(path.stem for path in (tmp_path / "records").iterdir()) == ["by-hand-1", "r1", "r3"]


def test_the_host_of_each_rank():
    assert hvdrecord.rank_hosts(SETTINGS) == ["alpha", "alpha", "beta", "gamma"]
    assert hvdrecord.rank_hosts({**SETTINGS, "np": 3}) == ["alpha", "alpha", "beta"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0m0.000s"),
        (0.0004, "0m0.000s"),
        (0.5, "0m0.500s"),
        (9.0071, "0m9.007s"),
        (59.9994, "0m59.999s"),
        (59.9996, "1m0.000s"),
        (94.4, "1m34.400s"),
        (319.6, "5m19.600s"),
        (3600, "60m0.000s"),
        (3725.5, "62m5.500s"),
    ],
)
def test_times_as_bash_prints_them(seconds, text):
    assert hvdrecord.clock(seconds) == text


def test_the_form_of_bash_s_own_time():
    done = subprocess.run(["bash", "-c", "time sleep 0.01"], capture_output=True, text=True, env={"LC_ALL": "C"})
    real = next(line for line in done.stderr.splitlines() if line.startswith("real\t"))
    whole, _, rest = real.removeprefix("real\t").partition("m")
    assert hvdrecord.clock(int(whole) * 60 + float(rest.removesuffix("s"))) == real.removeprefix("real\t")


def test_the_report(capsys, tmp_path):
    record = hvdrecord.new_record(SETTINGS, WORDS, str(tmp_path))
    ranks = [{"rank": rank, "code": 0, "ended": "itself"} for rank in range(4)]
    record.told.update({"ranks": ranks, "real": 94.4, "user": 0.5, "sys": 0.25})
    record.finish(0, None)
    hvdrecord.report(record.told, {})
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "hvdcompose: all 4 ranks ended with exit 0",
        "hvdcompose: run r1 ended with exit 0",
        *("real\t1m34.400s", "user\t0m0.500s", "sys\t0m0.250s"),
    ]
