"""Facts -> findings: what would stop a run, before anything starts."""

from __future__ import annotations

import pytest

from hvdcompose.doctor.rules import Facts, findings, version_of
from hvdcompose.hosts.observed import EngineFacts

WELL = EngineFacts("id-a", "28.2.2", False, "x86_64")
REMEDY_COMPOSE = "Debian, Ubuntu: apt install docker-compose-v2 (or docker-compose-plugin from Docker's own packages)"


def rootless(version: str) -> EngineFacts:
    return EngineFacts(f"id-{version}", version, True, "x86_64")


def told(compose: str = "2.40.3", contexts=None, **engines: EngineFacts) -> list[str]:
    return [str(finding) for finding in findings(Facts(compose, engines, contexts or {}))]


def test_all_is_well():
    assert told(alpha=WELL, beta=EngineFacts("id-b", "20.10.24", False, "x86_64")) == []


COMPOSE = [
    ("", "this machine has no `docker compose`; 2.23.1 or later is needed"),
    ("1.29.2", "this machine's `docker compose` is 1.29.2; 2.23.1 or later is needed"),
    ("2.22.0", "this machine's `docker compose` is 2.22.0; 2.23.1 or later is needed"),
    ("v2.22.0-desktop.2", "this machine's `docker compose` is v2.22.0-desktop.2; 2.23.1 or later is needed"),
    ("dev", "this machine's `docker compose` is dev; 2.23.1 or later is needed"),
    ("2.23.0", "this machine's `docker compose` is 2.23.0; 2.23.1 or later is needed"),
    ("2.23.1", None),
    ("2.24", None),
    ("2.40.3", None),
    ("v2.23.1", None),
    ("5.0.0", None),
    ("2.26.1-4", None),
]


@pytest.mark.parametrize(("version", "sentence"), COMPOSE)
def test_compose(version, sentence):
    found = findings(Facts(version, {"alpha": WELL}))
    assert [str(finding) for finding in found] == ([sentence] if sentence else [])
    assert all((finding.host, finding.remedy) == ("", REMEDY_COMPOSE) for finding in found)


ROOTLESS = [
    ("20.10.24", True),
    ("26.1.5+dfsg1", True),
    ("29.4.1", True),
    ("29.4", True),
    ("", True),
    ("29.5.0", False),
    ("29.5.0-rc.1", False),
    ("30.0.0", False),
]


@pytest.mark.parametrize(("version", "refused"), ROOTLESS)
def test_rootless_engines(version, refused):
    found = findings(Facts("2.40.3", {"alpha": WELL, "beta": rootless(version)}, {"beta": "rack-2"}))
    assert [finding.host for finding in found] == (["beta"] if refused else [])
    for finding in found:
        assert finding.message == (
            f"its Docker {version} is rootless, and its host network is not the machine's: "
            "sshd would listen where no other host can reach it"
        )
        assert finding.remedy == (
            "point its context (rack-2) to a rootful engine, usually unix:///var/run/docker.sock or ssh://USER@HOST; "
            "or use Docker 29.5 or later there"
        )


def test_a_rootful_engine_of_any_age_is_taken():
    assert told(alpha=EngineFacts("id", "20.10.24", False, "x86_64")) == []


def test_two_contexts_to_one_engine():
    contexts = {"alpha": "rack-1", "beta": "default", "gamma": "rack-3"}
    other = EngineFacts("id-b", "28.2.2", False, "x86_64")
    assert told(contexts=contexts, alpha=WELL, beta=WELL, gamma=other) == [
        "beta: same Docker engine as alpha: the contexts rack-1 and default lead to one machine"
    ]
    assert told(contexts=contexts, alpha=WELL, beta=other, gamma=WELL) == [
        "gamma: same Docker engine as alpha: the contexts rack-1 and rack-3 lead to one machine"
    ]
    assert len(told(alpha=WELL, beta=WELL, gamma=WELL)) == 2


def test_a_cloned_machine_has_the_engine_id_of_the_first():
    (found,) = findings(Facts("2.40.3", {"alpha": WELL, "beta": WELL}))
    assert "rm /var/lib/docker/engine-id" in found.remedy


def test_engines_that_do_not_tell_who_they_are_are_not_taken_for_one():
    nameless = EngineFacts("", "28.2.2", False, "x86_64")
    assert told(alpha=nameless, beta=nameless) == []


def test_everything_is_told_in_the_order_to_fix_it():
    assert [
        line.split(":")[0].split(" is ")[0]
        for line in told("2.22.0", alpha=rootless("20.10.24"), beta=WELL, gamma=WELL)
    ] == [
        "this machine's `docker compose`",
        "alpha",
        "gamma",
    ]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("29.5.1-rc.2", (29, 5, 1)),
        ("v2.40.3", (2, 40, 3)),
        ("26.1.5+dfsg1", (26, 1, 5)),
        (" 2.23\n", (2, 23)),
        ("2", (2,)),
        ("dev", ()),
        ("", ()),
    ],
)
def test_versions(text, version):
    assert version_of(text) == version
