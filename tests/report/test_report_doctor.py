"""The screen of doctor: readable at 80 columns, from two hosts to sixteen."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "doctor"))
from known import TEXT, TITAN, calls, spoil, to, well

from hvdcompose.doctor.rules import CHECKS, findings
from hvdcompose.hosts.probe import Gpu
from hvdcompose.report.doctor import pair_cell, screen, to_json


def many(count: int, name: str = "host-with-a-long-name-{}") -> str:
    hosts = "".join(f"  {name.format(n)}: {{address: 10.0.1.{n}}}\n" for n in range(1, count + 1))
    return f"name: demo\nimage: trainer:1\nhosts:\n{hosts}train: {{command: x}}\n"


def shown(facts) -> list[str]:
    return screen(facts, findings(facts))


def test_three_hosts_that_are_well():
    lines = shown(well())
    assert lines[0].split() == ["CHECK", "alpha", "beta", "gamma"]
    assert {"rootful": ["ok"] * 3}.items() <= {line.split()[0]: line.split()[1:] for line in lines[1:10]}.items()
    matrix = lines[lines.index("") + 1 :][:4]
    assert [line.split() for line in matrix] == [
        ["FROM", "\\", "TO", "alpha", "beta", "gamma"],
        ["alpha", "-", "ok", "ok"],
        ["beta", "ok", "-", "ok"],
        ["gamma", "ok", "ok", "-"],
    ]
    assert "horovod       0.28.1" in lines
    assert not any("FAIL" in line or "->" in line for line in lines)


def test_sixteen_hosts_in_eighty_columns():
    facts = well(many(16))
    facts = calls(facts, "timeout", to("host-with-a-long-name-7", facts))
    lines = shown(facts)
    assert max(len(line) for line in lines if "->" not in line and "iptables" not in line) <= 80
    assert lines[0].startswith("1 host-with-a-long-name-1  2 host-with-a-long-name-2")
    (row,) = (line for line in lines if line.startswith("ssh port "))
    assert row.split()[2:] == [*["."] * 6, "F", *["."] * 9]
    assert ". ok   n note   F FAIL   - nothing to look at" in lines


def test_four_hosts_with_names_that_do_not_fit():
    lines = shown(well(many(4)))
    assert lines[0] == "1 host-with-a-long-name-1  2 host-with-a-long-name-2  3 host-with-a-long-name-3"
    (row,) = (line for line in lines if line.startswith("rootful"))
    assert row.split() == ["rootful", "ok", "ok", "ok", "ok"]


def test_findings_come_last_numbered_with_what_to_do():
    facts = spoil(calls(well(), "timeout", to("beta", well())), "gamma", skew=60.0)
    lines = shown(facts)
    tail = lines[lines.index("") :]
    text = "\n".join(tail)
    assert "\n1. beta: from alpha, gamma to it, the ssh port 12345: no answer, a firewall" in text
    assert "\n   -> on beta, let the other hosts in on all TCP ports: iptables -I INPUT" in text
    assert text.index("note: gamma: its clock is 60 s ahead of the others'") > text.index("1. beta")
    assert "ssh: its ssh port fails   tcp: random ports fail   all: both" in text


def test_a_pair_s_cell_says_which_ports_failed():
    facts = well()
    pair = ("alpha", "beta")
    cells = [
        pair_cell(calls(facts, "timeout", [pair], ssh=ssh, ports=ports), *pair)
        for ssh, ports in ((False, False), (True, False), (False, True), (True, True))
    ]
    assert cells == ["ok", "ssh", "tcp", "all"]
    assert pair_cell(replace(facts, reaches={}), *pair) == "-"


def test_unequal_machines_are_shown_and_the_slowest_gpu_is_named():
    text = TEXT.replace("address", "gpus: 1, address")
    facts = well(text)
    new = Gpu("RTX 4090", 24564, "535.1", "u", (8, 9))
    for name, gpu in (("alpha", new), ("beta", TITAN), ("gamma", new)):
        facts = spoil(facts, name, gpus=(gpu,), gpus_asked=True)
    lines = shown(facts)
    joined = " ".join(" ".join(lines).split())
    assert "1 x RTX 4090, 24 GiB, 8.9 (alpha, gamma); 1 x TITAN V, 12 GiB, 7.0 (beta)" in joined
    assert "the others wait for the slowest GPU: TITAN V of beta, compute capability 7.0" in lines
    assert findings(facts) == []


def test_a_host_that_is_not_known_has_no_cells():
    facts = spoil(well(), "beta", engine=None, image=None, image_asked=False, probe=None, skew=None)
    facts = replace(facts, reaches={pair: told for pair, told in facts.reaches.items() if "beta" not in pair})
    data = to_json(facts, findings(facts))
    assert {cells["beta"] for check, cells in data["checks"].items() if check not in ("compose", "reached")} == {"-"}
    assert "beta" not in data["hosts"]["horovod"]


def test_the_json_tells_everything():
    facts = calls(well(), "timeout", [("alpha", "beta")])
    data = to_json(facts, findings(facts))
    assert set(data) == {"checks", "pairs", "logins", "hosts", "findings"}
    assert set(data["checks"]) <= set(CHECKS)
    (pair,) = (pair for pair in data["pairs"] if (pair["from"], pair["to"]) == ("alpha", "beta"))
    assert pair["state"] == "ssh"
    assert pair["ports"]["12345"] == "timeout"
    (finding,) = data["findings"]
    assert (finding["level"], finding["check"], finding["host"], finding["peers"]) == (
        "error",
        "ssh port",
        "beta",
        ["alpha"],
    )
