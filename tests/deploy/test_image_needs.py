"""How each host gets the image: built, pulled, sent, or refused with a reason."""

from __future__ import annotations

import pytest

from hvdcompose.config.model import Image
from hvdcompose.deploy.images import image_needs, settled_digest
from hvdcompose.deploy.reconcile import ImageNeeds
from hvdcompose.errors import REFUSED, Refused
from hvdcompose.hosts.images import ImageFacts

RIGHT = ImageFacts("d1", "amd64", 1000, "")
OLD = ImageFacts("d0", "amd64", 1000, "")
BUILT = ImageFacts("d1", "amd64", 1000, "b1")
ARM = ImageFacts("d9", "arm64", 1000, "")
X86 = {"alpha": "x86_64", "beta": "x86_64"}
BY_NAME = Image(name="trainer:1")
NEVER = Image(name="trainer:1", pull="never")
ALWAYS = Image(name="trainer:1", pull="always")
BUILD = Image(name="trainer:1", build="./trainer")
PINNED = Image(name=f"team/trainer@sha256:{'0' * 64}")
PINNED_NEVER = PINNED.model_copy(update={"pull": "never"})


def hosts(alpha, beta):
    return {"alpha": alpha, "beta": beta}


LACKS = "it has no such image"
NEEDS = [
    # image, the client's, the hosts', -> what is to be done
    pytest.param(BY_NAME, RIGHT, hosts(RIGHT, RIGHT), ImageNeeds(send={}), id="all have it"),
    pytest.param(BY_NAME, RIGHT, hosts(None, RIGHT), ImageNeeds(send={"alpha": LACKS}), id="one lacks it"),
    pytest.param(
        BY_NAME,
        RIGHT,
        hosts(OLD, RIGHT),
        ImageNeeds(send={"alpha": "it has another one: d0, here d1"}),
        id="one has another: the client's is meant",
    ),
    pytest.param(BY_NAME, None, hosts(RIGHT, RIGHT), ImageNeeds(pull={}), id="the client has none, and all agree"),
    pytest.param(
        BY_NAME,
        None,
        hosts(None, RIGHT),
        ImageNeeds(pull={"alpha": "it has no such image, nor has this machine"}),
        id="nobody can send it",
    ),
    *(
        pytest.param(
            image,
            None,
            hosts(RIGHT, None),
            ImageNeeds(send={"beta": "it has no such image; alpha has it, this machine has not"}),
            id=f"only the primary has it, and {image.pull}",
        )
        for image in (BY_NAME, NEVER)
    ),
    pytest.param(
        PINNED,
        None,
        hosts(RIGHT, None),
        ImageNeeds(pull={"beta": "it has no such image, one named by its digest is not sent"}),
        id="by digest, on the primary only",
    ),
    pytest.param(NEVER, RIGHT, hosts(None, None), ImageNeeds(send=dict.fromkeys(X86, LACKS)), id="never, sent"),
    pytest.param(NEVER, None, hosts(RIGHT, RIGHT), ImageNeeds(pull={}), id="never, all have it"),
    pytest.param(
        ALWAYS, RIGHT, hosts(RIGHT, None), ImageNeeds(pull=dict.fromkeys(X86, "pull: always")), id="always asks"
    ),
    pytest.param(
        ALWAYS, None, hosts(OLD, RIGHT), ImageNeeds(pull=dict.fromkeys(X86, "pull: always")), id="always settles"
    ),
    pytest.param(
        BUILD,
        None,
        hosts(None, None),
        ImageNeeds(build="not built yet", send=dict.fromkeys(X86, "after the build")),
        id="not built yet",
    ),
    pytest.param(
        BUILD,
        OLD,
        hosts(OLD, OLD),
        ImageNeeds(build="its folder changed", send=dict.fromkeys(X86, "after the build")),
        id="its folder changed",
    ),
    pytest.param(BUILD, BUILT, hosts(BUILT, None), ImageNeeds(send={"beta": LACKS}), id="built, and one lacks it"),
    pytest.param(
        PINNED,
        RIGHT,
        hosts(None, RIGHT),
        ImageNeeds(pull={"alpha": "it has no such image, one named by its digest is not sent"}),
        id="by digest: save and load would lose it",
    ),
    pytest.param(PINNED_NEVER, RIGHT, hosts(RIGHT, RIGHT), ImageNeeds(pull={}), id="by digest, all have it"),
    pytest.param(BY_NAME, ARM, hosts(RIGHT, RIGHT), ImageNeeds(pull={}), id="the client's is for another architecture"),
    pytest.param(BUILD, BUILT, hosts(BUILT, BUILT), ImageNeeds(send={}), id="built, and all have it"),
    pytest.param(
        Image(name="trainer:1", build="./trainer", pull="always"),
        BUILT,
        hosts(BUILT, BUILT),
        ImageNeeds(send={}),
        id="what is built here is in no registry",
    ),
]


@pytest.mark.parametrize(("image", "client", "there", "needs"), NEEDS)
def test_needs(image, client, there, needs):
    assert image_needs(image, client, there, X86, primary="alpha", wanted_build="b1" if image.build else "") == needs


HERE_NOT = "; this machine has no engine"
WITHOUT_ENGINE = [
    # the hosts' -> what is to be done where only the primary can build
    pytest.param(
        hosts(None, OLD),
        ImageNeeds(build=f"not built yet{HERE_NOT}", builder="alpha", send={"beta": "after the build"}),
        id="not built yet",
    ),
    pytest.param(
        hosts(OLD, BUILT),
        ImageNeeds(build=f"its folder changed{HERE_NOT}", builder="alpha", send={"beta": "after the build"}),
        id="its folder changed",
    ),
    pytest.param(hosts(BUILT, OLD), ImageNeeds(send={"beta": "it has another one: d0, on alpha d1"}), id="built there"),
    pytest.param(hosts(BUILT, BUILT), ImageNeeds(send={}), id="all have it"),
]


@pytest.mark.parametrize(("there", "needs"), WITHOUT_ENGINE)
def test_a_client_without_an_engine_builds_on_the_primary(there, needs):
    found = image_needs(BUILD, None, there, X86, primary="alpha", engine_here=False, wanted_build="b1")
    assert found == needs


def test_a_client_without_an_engine_needs_none_to_pull():
    found = image_needs(BY_NAME, None, hosts(None, None), X86, primary="alpha", engine_here=False)
    assert found == ImageNeeds(pull=dict.fromkeys(X86, "it has no such image, nor has this machine"))


REFUSALS = [
    pytest.param(
        BY_NAME,
        None,
        hosts(RIGHT, None),
        {"alpha": "x86_64", "beta": "aarch64"},
        ["beta: it is arm64, the image trainer:1 is for amd64"],
        id="the primary's is for another architecture",
    ),
    pytest.param(
        NEVER,
        None,
        hosts(None, RIGHT),
        X86,
        ["alpha: it has no image trainer:1, nor has this machine; `pull: never` asks no registry"],
        id="nowhere",
    ),
    pytest.param(
        BY_NAME,
        None,
        hosts(OLD, RIGHT),
        X86,
        [
            "the hosts have different images of one name:",
            "alpha: trainer:1 is d0 (amd64)",
            "beta: trainer:1 is d1 (amd64)",
        ],
        id="a mixture",
    ),
    pytest.param(
        BY_NAME,
        None,
        hosts(ARM, RIGHT),
        {"alpha": "aarch64", "beta": "x86_64"},
        [
            "the hosts have different images of one name:",
            "alpha: trainer:1 is d9 (arm64)",
            "beta: trainer:1 is d1 (amd64)",
        ],
        id="two architectures are a mixture too",
    ),
    pytest.param(
        BY_NAME,
        RIGHT,
        hosts(None, None),
        {"alpha": "x86_64", "beta": "aarch64"},
        ["beta: it is arm64, the image trainer:1 is for amd64"],
        id="another architecture",
    ),
    pytest.param(
        PINNED_NEVER,
        RIGHT,
        hosts(None, RIGHT),
        X86,
        [f"alpha: it has no image {PINNED.name}, one named by its digest is not sent; `pull: never` asks no registry"],
        id="by digest, nowhere",
    ),
    *(
        pytest.param(
            BY_NAME,
            ARM,
            there,
            X86,
            [
                "alpha: it is amd64, the image trainer:1 is for arm64",
                "beta: it is amd64, the image trainer:1 is for arm64",
            ],
            id=f"the client's is for another architecture, and {why}",
        )
        for there, why in (
            (hosts(None, RIGHT), "one lacks it"),
            (hosts(OLD, RIGHT), "the hosts' differ"),
            (hosts(ARM, ARM), "the hosts' are wrong too"),
        )
    ),
    pytest.param(
        BUILD,
        BUILT,
        hosts(None, None),
        {"alpha": "aarch64", "beta": "aarch64"},
        ["alpha: it is arm64, the image trainer:1 is for amd64", "beta: it is arm64, the image trainer:1 is for amd64"],
        id="built for another architecture",
    ),
]


@pytest.mark.parametrize(("image", "client", "there", "machines", "told"), REFUSALS)
def test_refusals(image, client, there, machines, told):
    with pytest.raises(Refused) as caught:
        image_needs(image, client, there, machines, primary="alpha", wanted_build="b1" if image.build else "")
    assert caught.value.message.splitlines() == told
    assert caught.value.hint and caught.value.exit_code == REFUSED


@pytest.mark.parametrize(
    ("machine", "architecture"),
    [("x86_64", "amd64"), ("aarch64", "arm64"), ("armv7l", "arm"), ("amd64", "amd64"), ("ppc64le", "ppc64le")],
)
def test_machines_and_images_name_architectures_differently(machine, architecture):
    client = ImageFacts("d1", architecture, 1, "")
    assert image_needs(BY_NAME, client, {"a": None}, {"a": machine}, primary="a").send == {"a": LACKS}


def test_an_engine_that_does_not_tell_its_architecture_is_not_refused():
    assert image_needs(BY_NAME, RIGHT, {"a": None}, {"a": ""}, primary="a").send == {"a": LACKS}


SETTLED = [
    (None, hosts(RIGHT, RIGHT), "d1"),
    (RIGHT, hosts(RIGHT, RIGHT), "d1"),
    (None, hosts(RIGHT, OLD), None),
    (None, hosts(RIGHT, None), None),
    (OLD, hosts(RIGHT, RIGHT), None),
    (None, hosts(None, None), None),
]


@pytest.mark.parametrize(("client", "there", "digest"), SETTLED)
def test_settled(client, there, digest):
    assert settled_digest(client, there) == digest
