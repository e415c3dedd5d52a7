"""Rules over the image: the same everywhere, for this machine's CPU, with all that a run needs in it."""

from __future__ import annotations

from collections.abc import Iterator

from hvdcompose.doctor.facts import Facts, host_network_is_private
from hvdcompose.doctor.rule import At, rule
from hvdcompose.stack.launch import controller_of

TITLE = "The image"
NEEDED = "the image needs Python 3, Horovod and OpenSSH"


@rule("image", needs="image", remedy="hvdcompose apply sends this machine's image to every host")
def images_can_be_had(facts: Facts) -> Iterator[At]:
    """Every host has the image or can get it, made for its CPU, and it is one and the same (cases D09, H03)."""
    if facts.image_refused is not None:
        for line in facts.image_refused.message.splitlines():
            name, _, told = line.partition(": ")
            if name in facts.hosts:
                yield At(name, told, remedy=facts.image_refused.hint)


@rule("image", needs="image", remedy="hvdcompose apply sends this machine's image to every host")
def images_are_the_same(facts: Facts) -> Iterator[At]:
    """No host has another image of the same name than this machine: one rebuilt or pulled on another day (case H03)."""
    client = facts.client_image
    for name in facts.image_differs:
        image = facts.hosts[name].image
        if image is not None and client is not None:
            message = f"its image {facts.cluster.image.name} is {image.digest}, this machine's is {client.digest}"
            yield At(name, message, found=image.digest, wanted=client.digest)


@rule("image", level="note", needs="image", remedy="hvdcompose apply brings it, then looks before it starts anything")
def images_are_there(facts: Facts) -> Iterator[At]:
    """A host without the image gets it from apply; until then nothing can be tried there (case D09)."""
    for host, seen in facts.hosts.items():
        looked_at = seen.engine is not None and not host_network_is_private(seen.engine)
        if host in facts.image_comes and looked_at and not seen.refusals:
            yield At(host, f"it has no image {facts.cluster.image.name} yet: what needs it is not looked at")


@rule("image", needs="container", remedy=NEEDED)
def images_run(facts: Facts) -> Iterator[At]:
    """A container of the image starts, and has a Python that the scripts of hvdcompose run in (case H07)."""
    for name, host in facts.hosts.items():
        for refusal in host.refusals:
            if refusal.about in ("image", "python"):
                told = refusal.error.message.removeprefix("trying the run's container: ")
                yield At(name, told, remedy=refusal.error.hint)


@rule("programs", needs="probe", remedy="install Horovod in the image, or put it on the image's PATH")
def horovodrun_is_there(facts: Facts) -> Iterator[At]:
    """The image has `horovodrun`, which the launcher calls (case H07)."""
    for name, _, probe in facts.probed():
        if name == facts.cluster.primary_name and not probe.programs.get("horovodrun"):
            yield At(name, "this image has no horovodrun")


@rule("programs", needs="probe", remedy="install openssh-server and openssh-client in the image")
def openssh_is_there(facts: Facts) -> Iterator[At]:
    """The image has an sshd for the workers and an ssh for the launcher (case S01)."""
    for name, _, probe in facts.probed():
        wanted = "ssh" if name == facts.cluster.primary_name else "sshd"
        if not probe.programs.get(wanted) and len(facts.hosts) > 1:
            yield At(name, f"this image has no {wanted}")


@rule("programs", needs="probe", remedy="in the Dockerfile: RUN usermod --home /root --shell /bin/sh root")
def root_can_log_in(facts: Facts) -> Iterator[At]:
    """The image's root has the home /root and a shell that is there: sshd starts every rank by it (case S07)."""
    for name, _, probe in facts.probed():
        if probe.home != "/root":
            yield At(name, f"root's home in this image is {probe.home or 'unknown'}", found=probe.home, wanted="/root")
        shell = probe.shell.split("/")[-1]
        if shell in ("nologin", "false") or probe.shell.endswith(" (missing)"):
            yield At(name, f"root's shell in this image is {probe.shell}: nobody can log in", found=probe.shell)


@rule("programs", needs="probe", remedy="in the Dockerfile: RUN ln -s {path} /usr/local/bin/")
def orted_is_found_over_ssh(facts: Facts) -> Iterator[At]:
    """With MPI, `orted` is on the PATH of an ssh session, which knows nothing of the image's ENV (case S07)."""
    if controller_of(facts.cluster.horovod) != "mpi":
        return
    for name, _, probe in facts.probed():
        path = probe.programs.get("orted", "")
        if name != facts.cluster.primary_name and path and not probe.programs.get("orted over ssh"):
            yield At(name, f"orted is at {path}, where an ssh session does not look for it", {"path": path})


@rule("programs", needs="probe", remedy="`controller: gloo` in cluster.yaml, or build Horovod with MPI in the image")
def horovod_has_mpi(facts: Facts) -> Iterator[At]:
    """With `controller: mpi`, Horovod was built with it and Open MPI is in the image (case H07)."""
    if facts.cluster.horovod.controller != "mpi":
        return
    for name, _, probe in facts.probed():
        if probe.built_with and "MPI" not in probe.built_with:
            yield At(name, "this image's Horovod is built without MPI", found=", ".join(probe.built_with), wanted="MPI")
        elif not probe.programs.get("mpirun"):
            yield At(name, "this image has no mpirun", wanted="Open MPI")


@rule("programs", level="note", needs="probe", remedy="build it with HOROVOD_WITH_PYTORCH=1 against the image's torch")
def horovod_has_torch(facts: Facts) -> Iterator[At]:
    """Where the image has torch, its Horovod was built with it: else `import horovod.torch` fails (case H07)."""
    for name, _, probe in facts.probed():
        if probe.versions.get("torch") and probe.versions.get("horovod") and "torch" not in probe.built_with:
            yield At(name, "this image has torch, and a Horovod built without it")


RULES = (
    images_can_be_had,
    images_are_the_same,
    images_are_there,
    images_run,
    horovodrun_is_there,
    openssh_is_there,
    root_can_log_in,
    orted_is_found_over_ssh,
    horovod_has_mpi,
    horovod_has_torch,
)
