"""What Docker, Compose and ssh really write -> the sentence a person gets. Texts as seen, or as public reports show."""

from __future__ import annotations

import pytest

from hvdcompose.hosts.explain import KNOWN, NO_REGISTRY, explain

DIAL = 'error during connect: Get "http://docker.example.com/v1.47/version": command [ssh -l root -- gpu1 docker system dial-stdio] has exited with exit status {}, make sure the URL is valid, and Docker 18.09 or later is installed on the remote host: stderr={}'  # noqa: E501
CREATE = "Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: {}"  # noqa: E501
TOOLKIT = "error during container init: error running prestart hook #0: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'\nnvidia-container-cli: {}: unknown"  # noqa: E501

# real text, sentence, hint
TEXTS = [
    pytest.param(
        'Failed to initialize: unable to resolve docker endpoint: context "gpu1": context not found: open '
        "/root/.docker/contexts/meta/0a1b/meta.json: no such file or directory",
        "there is no Docker context gpu1 on this machine",
        "docker context create gpu1 --docker host=ssh://USER@HOST",
        id="no context",
    ),
    pytest.param(
        DIAL.format(255, "Host key verification failed."),
        "ssh does not know the host's key",
        "log in to it once with ssh",
        id="unknown host key",
    ),
    pytest.param(
        DIAL.format(255, "root@gpu1: Permission denied (publickey,password)."),
        "ssh refuses the login of this Docker context",
        "`ssh -o BatchMode=yes USER@HOST true` must work without a question: load the key into an agent",
        id="login refused",
    ),
    pytest.param(
        DIAL.format(255, "ssh: Could not resolve hostname gpu1: Name or service not known"),
        "the name gpu1 of its Docker context does not resolve",
        None,
        id="name does not resolve",
    ),
    pytest.param(
        DIAL.format(255, "kex_exchange_identification: read: Connection reset by peer"),
        "its sshd refused one more session (MaxStartups or MaxSessions), the engine itself may be well",
        "try again, or raise MaxStartups and MaxSessions in its sshd_config",
        id="MaxStartups",
    ),
    pytest.param(
        "mux_client_request_session: session request failed: Session open refused by peer",
        "its sshd refused one more session (MaxStartups or MaxSessions), the engine itself may be well",
        "try again, or raise MaxStartups and MaxSessions in its sshd_config",
        id="MaxSessions",
    ),
    pytest.param(
        DIAL.format(255, "ssh: connect to host 10.0.0.2 port 22: Connection refused"),
        "nothing listens on its ssh port 22: the machine is up, its sshd is not",
        None,
        id="sshd is off",
    ),
    pytest.param(
        DIAL.format(255, "ssh: connect to host 10.0.0.2 port 22: No route to host"),
        "no route to the host: it is off, or on another network",
        None,
        id="no route",
    ),
    pytest.param(
        DIAL.format(255, "ssh: connect to host 10.0.0.2 port 22: Connection timed out"),
        "no answer: off, or a firewall drops the packets",
        None,
        id="timed out",
    ),
    pytest.param(
        DIAL.format(127, "bash: line 1: docker: command not found"),
        "docker is not on the PATH of an ssh session there",
        "`ssh USER@HOST docker version` must work",
        id="no docker there, bash",
    ),
    pytest.param(
        DIAL.format(127, "sh: 1: docker: not found"),
        "docker is not on the PATH of an ssh session there",
        "`ssh USER@HOST docker version` must work",
        id="no docker there, dash",
    ),
    pytest.param(
        DIAL.format(127, "zsh:1: command not found: docker"),
        "docker is not on the PATH of an ssh session there",
        "`ssh USER@HOST docker version` must work",
        id="no docker there, zsh",
    ),
    pytest.param(
        "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get "
        '"http://%2Fvar%2Frun%2Fdocker.sock/v1.47/version": dial unix /var/run/docker.sock: connect: permission denied',
        "the user of its Docker context may not use the Docker socket",
        "add the user to the group docker on that host, and log in anew",
        id="socket, Docker 28",
    ),
    pytest.param(
        "permission denied while trying to connect to the docker API at unix:///var/run/docker.sock",
        "the user of its Docker context may not use the Docker socket",
        "add the user to the group docker on that host, and log in anew",
        id="socket, Docker 29",
    ),
    pytest.param(
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        "its Docker engine does not answer: it is not running",
        "on that host: systemctl start docker",
        id="daemon is off, Docker 28",
    ),
    pytest.param(
        "failed to connect to the docker API at unix:///var/run/docker.sock; check if the path is correct and if the "
        "daemon is running: dial unix /var/run/docker.sock: connect: no such file or directory",
        "its Docker engine does not answer: it is not running",
        "on that host: systemctl start docker",
        id="daemon is off, Docker 29",
    ),
    pytest.param(
        'Error response from daemon: could not select device driver "nvidia" with capabilities: [[gpu]]',
        "its Docker engine has no NVIDIA GPU runtime",
        "install the NVIDIA Container Toolkit there and restart docker; `gpus: none` runs without GPUs",
        id="no GPU runtime",
    ),
    pytest.param(
        'Error response from daemon: could not select device driver "" with capabilities: [[gpu]]',
        "its Docker engine has no NVIDIA GPU runtime",
        "install the NVIDIA Container Toolkit there and restart docker; `gpus: none` runs without GPUs",
        id="no GPU runtime, `docker run --gpus`",
    ),
    pytest.param(
        'Error response from daemon: could not select device driver "cdi" with capabilities: [[gpu]]',
        "its Docker engine does not know CDI: that takes engine 25 or later with the feature switched on",
        'on that host: {"features": {"cdi": true}} in /etc/docker/daemon.json, then restart docker',
        id="no CDI",
    ),
    pytest.param(
        CREATE.format("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=0"),
        "its Docker engine knows no CDI device nvidia.com/gpu=0",
        "on that host: nvidia-ctk cdi list; nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        id="no such CDI device",
    ),
    pytest.param(
        CREATE.format(
            TOOLKIT.format(
                "requirement error: unsatisfied condition: cuda>=12.8, please update your driver to a newer version"
            )
        ),
        "the image needs cuda>=12.8; its GPU driver is older",
        "update it there",
        id="driver too old",
    ),
    pytest.param(
        CREATE.format(TOOLKIT.format("device error: 7: unknown device")),
        "it has no such GPU: 7",
        "on that host: nvidia-smi -L lists its GPUs",
        id="no such GPU",
    ),
    *(
        pytest.param(
            CREATE.format(TOOLKIT.format(text)),
            "it has no NVIDIA driver that works",
            "on that host nvidia-smi must work: install the driver, or reboot after its update; "
            "`gpus: none` runs without GPUs",
            id=f"no driver: {text}",
        )
        for text in (
            "initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file: "
            "no such file or directory",
            "initialization error: nvml error: driver not loaded",
        )
    ),
    pytest.param(
        CREATE.format(
            TOOLKIT.format(
                "mount error: file creation failed: /var/lib/docker/overlay2/0a1b/merged/usr/lib/x86_64-linux-gnu/"
                "libnvidia-ml.so.1: file exists"
            )
        ),
        "the image itself holds /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1, where the host's GPU driver is to be "
        "mounted",
        "build it without driver packages (libnvidia-compute-*, nvidia-utils-*), and not by docker commit",
        id="driver files in the image",
    ),
    *(
        pytest.param(
            CREATE.format(TOOLKIT.format(text)),
            "its NVIDIA Container Toolkit may not give a container's cgroup the GPUs",
            "on that host: update nvidia-container-toolkit and restart docker; "
            "or `gpus: {driver: cdi, ids: [nvidia.com/gpu=all]}`",
            id=text,
        )
        for text in (
            "mount error: failed to add device rules: unable to find any existing device filters attached to the "
            "cgroup: bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted",
            "container error: cgroup subsystem devices not found",
        )
    ),
    pytest.param(
        CREATE.format(TOOLKIT.format("ldcache error: open failed: /sbin/ldconfig.real: no such file or directory")),
        "its NVIDIA Container Toolkit cannot give the GPUs: ldcache error: open failed: /sbin/ldconfig.real: no such "
        "file or directory",
        "on that host: nvidia-container-cli -k -d /dev/tty info tells more; `gpus: none` runs without GPUs",
        id="the toolkit, for whatever reason",
    ),
    pytest.param(
        "Error response from daemon: client version 1.42 is too old. Minimum supported API version is 1.44, please "
        "upgrade your client to a newer version",
        "this machine's docker or Compose is too old for its engine: API 1.42, and it wants 1.44 or later",
        "update docker and docker-compose-plugin on this machine",
        id="engine 29 and an old client",
    ),
    pytest.param(
        "Error response from daemon: client version 1.53 is too new. Maximum supported API version is 1.41",
        "its engine is too old for this machine's docker or Compose: API 1.41 at most, asked in 1.53",
        "update Docker on that host",
        id="a client that is too new",
    ),
    *(
        pytest.param(
            text,
            "AppArmor forbids its engine to end a container",
            "on that host: aa-remove-unknown, or reboot; of Docker from snap and Docker from apt keep one",
            id=text,
        )
        for text in (
            "Error response from daemon: cannot stop container: 0a1b: permission denied",
            'OCI runtime state failed: signaling init process caused "permission denied"\n: unknown',
        )
    ),
    pytest.param(
        "Error response from daemon: failed to create task for container: unsupported shim version (3): not "
        "implemented",
        "its containerd was updated and not restarted",
        "on that host: systemctl restart containerd docker",
        id="an old containerd still runs",
    ),
    pytest.param(
        "Error response from daemon: error while creating mount source path '/opt/something/data': mkdir "
        "/opt/something: read-only file system",
        "its engine may neither see nor make /opt/something/data: a read-only disk, or Docker from a snap, which sees "
        "little but /home",
        "Docker's own packages in the place of the snap, or a folder that it may read",
        id="Docker from a snap",
    ),
    pytest.param(
        "docker: Error response from daemon: failed to create task for container: failed to create shim task: OCI "
        "runtime create failed: runc create failed: unable to start container process: error during container init: "
        "error running hook #0: error running hook: exit status 1, stdout: , stderr: stub nvidia hook: device error: "
        "2: unknown device (this host has 0 1 ): unknown",
        "it has no such GPU: 2",
        "on that host: nvidia-smi -L lists its GPUs",
        id="no such GPU, the lab's stub",
    ),
    pytest.param(
        'docker: Error response from daemon: could not select device driver "cdi" with capabilities: []',
        "its Docker engine does not know CDI: that takes engine 25 or later with the feature switched on",
        'on that host: {"features": {"cdi": true}} in /etc/docker/daemon.json, then restart docker',
        id="CDI switched off, Docker 26",
    ),
    pytest.param(
        "docker: Error response from daemon: CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=9",
        "its Docker engine knows no CDI device nvidia.com/gpu=9",
        "on that host: nvidia-ctk cdi list; nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        id="no such CDI device, Docker 26",
    ),
    pytest.param(
        "write /8b2acf3e909a9a46073f5178078df31af7d45da5d62b7e8accf5ced5d0acc1c4/layer.tar: no space left on device",
        "its disk is full",
        "on that host: docker system df shows what takes the space, docker system prune frees it",
        id="disk full while an image is loaded",
    ),
    pytest.param(
        "Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime "
        "create failed: runc create failed: unable to start container process: error during container init: error "
        "setting rlimits for ready process: error setting rlimit type 8: operation not permitted: unknown",
        "its engine may not set the ulimits of cluster.yaml",
        "lower or drop `ulimits` for this host",
        id="memlock",
    ),
    pytest.param(
        "write /var/lib/docker/tmp/GetImageBlob1: no space left on device",
        "its disk is full",
        "on that host: docker system df shows what takes the space, docker system prune frees it",
        id="disk full",
    ),
    pytest.param(
        "Error response from daemon: no such image: trainer:1: No such image: trainer:1",
        "it has no image trainer:1",
        None,
        id="image, Docker 20.10",
    ),
    pytest.param("Error response from daemon: No such image: trainer:1", "it has no image trainer:1", None, id="image"),
    pytest.param(
        'Error response from daemon: invalid mount config for type "bind": bind source path does not exist: /srv/mnist',
        "it has no folder /srv/mnist, which cluster.yaml mounts",
        "make it on that host, or change the volume in cluster.yaml",
        id="no such folder",
    ),
    pytest.param(
        CREATE.format("error during container init: error setting rlimit type 8: operation not permitted"),
        "its engine may not set the ulimits of cluster.yaml",
        "lower or drop `ulimits` for this host",
        id="ulimit",
    ),
    pytest.param(
        "Error response from daemon: pull access denied for team/trainer, repository does not exist or may require "
        "'docker login': denied: requested access to the resource is denied",
        "the registry has no such image, or refuses it without a login",
        f"docker login REGISTRY on this machine: its login is used\n{NO_REGISTRY}",
        id="pull denied",
    ),
    pytest.param(
        "Error response from daemon: unauthorized",
        "the registry has no such image, or refuses it without a login",
        f"docker login REGISTRY on this machine: its login is used\n{NO_REGISTRY}",
        id="401 of a registry",
    ),
    pytest.param(
        "Error response from daemon: denied",
        "the registry has no such image, or refuses it without a login",
        f"docker login REGISTRY on this machine: its login is used\n{NO_REGISTRY}",
        id="403 of a registry",
    ),
    pytest.param(
        'Error response from daemon: Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io on '
        "127.0.0.11:53: no such host",
        "it cannot reach the registry registry-1.docker.io: dial tcp: lookup registry-1.docker.io on 127.0.0.11:53: "
        "no such host",
        NO_REGISTRY,
        id="registry without a name",
    ),
    pytest.param(
        'Error response from daemon: Get "http://localhost:5000/v2/": dial tcp 127.0.0.1:5000: connect: connection '
        "refused",
        "it cannot reach the registry localhost:5000: dial tcp 127.0.0.1:5000: connect: connection refused",
        NO_REGISTRY,
        id="registry off: not the engine",
    ),
    pytest.param(
        'failed to resolve reference "10.0.0.9:5000/x:1": failed to do request: Head "https://10.0.0.9:5000/v2/x/'
        'manifests/1": dial tcp 10.0.0.9:5000: connect: no route to host',
        "it cannot reach the registry 10.0.0.9:5000: dial tcp 10.0.0.9:5000: connect: no route to host",
        NO_REGISTRY,
        id="no route to a registry, containerd's image store",
    ),
    pytest.param(
        "Error response from daemon: manifest for localhost:5000/missing:1 not found: manifest unknown: manifest "
        "unknown",
        "the registry has no such image",
        NO_REGISTRY,
        id="404 of a registry",
    ),
    pytest.param(
        "Error response from daemon: toomanyrequests: You have reached your pull rate limit.",
        "the registry sends nothing for a while: its limit of pulls is reached",
        NO_REGISTRY,
        id="429 of a registry",
    ),
    pytest.param(
        "no matching manifest for linux/arm64/v8 in the manifest list entries",
        "the image is not made for its architecture (linux/arm64/v8)",
        None,
        id="no manifest",
    ),
    pytest.param(
        "exec /usr/bin/python3: exec format error", "the image is made for another architecture", None, id="exec format"
    ),
    pytest.param(
        "[FATAL tini (7)] exec /hvd/worker failed: No such file or directory",
        "the image has no python3",
        "the image needs Python 3, Horovod and OpenSSH",
        id="no interpreter, docker's init",
    ),
    pytest.param(
        "/usr/bin/env: \u2018python3\u2019: No such file or directory",
        "the image has no python3",
        "the image needs Python 3, Horovod and OpenSSH",
        id="no python3, coreutils",
    ),
    pytest.param(
        "env: can't execute 'python3': No such file or directory",
        "the image has no python3",
        "the image needs Python 3, Horovod and OpenSSH",
        id="no python3, busybox",
    ),
    pytest.param(
        "Error response from daemon: Container aad010d792f3 is restarting, wait until the container is running",
        "its container ended at once",
        None,
        id="exec into a container that restarts",
    ),
    pytest.param(
        "unable to upgrade to tcp, received 409",
        "its container ended at once",
        None,
        id="exec into a container that ends",
    ),
    pytest.param(
        "Error response from daemon: container 31cb888c2b93 is not running",
        "its container ended at once",
        None,
        id="exec into a container that ended",
    ),
    pytest.param(
        CREATE.format('exec: "/hvd/worker": stat /hvd/worker: no such file or directory'),
        "the image has no /hvd/worker",
        "the image needs Python 3, Horovod and OpenSSH",
        id="no program",
    ),
    pytest.param(
        'OCI runtime exec failed: exec failed: unable to start container process: exec: "python3": executable file not '
        "found in $PATH",
        "the image has no python3",
        "the image needs Python 3, Horovod and OpenSSH",
        id="no program on PATH",
    ),
]


@pytest.mark.parametrize(("text", "sentence", "hint"), TEXTS)
def test_known_failures(text, sentence, hint):
    assert explain(text) == (sentence, hint)


def test_a_line_that_is_broken_before_its_end_is_told_whole():
    assert explain("first\nrunc did not end: odd trouble\n: unknown\n")[0] == "runc did not end: odd trouble: unknown"


def test_every_sentence_is_reached_by_a_real_text():
    reached = {explain(case.values[0])[0].split(" {")[0] for case in TEXTS}
    for known in KNOWN:
        begin = known.message.partition("{")[0]
        assert any(sentence.startswith(begin) for sentence in reached), known.message


# texts that hold a phrase of a known failure and mean something else
OTHERS = [
    pytest.param("first\n\n  last line  \n\n", "last line", id="the last line of what is not known"),
    pytest.param("", "it failed without a word", id="nothing"),
    pytest.param(" \n\t\n", "it failed without a word", id="only blanks"),
    pytest.param("Error: {0} of {name} failed", "Error: {0} of {name} failed", id="braces"),
    pytest.param("context deadline exceeded", "context deadline exceeded", id="not a Docker context"),
    pytest.param(
        "Error response from daemon: network mnist_default not found",
        "Error response from daemon: network mnist_default not found",
        id="no context in it",
    ),
    pytest.param(
        "open /srv/port 22: permission denied",
        "open /srv/port 22: permission denied",
        id="not a login",
    ),
]


@pytest.mark.parametrize(("text", "sentence"), OTHERS)
def test_unknown_failures(text, sentence):
    assert explain(text) == (sentence, None)
