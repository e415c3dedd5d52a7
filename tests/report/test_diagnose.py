"""What the logs of a run that failed say about its cause."""

from __future__ import annotations

import re

import pytest

from hvdcompose.report.diagnose import SIGNS, diagnose
from hvdcompose.report.logs import Line

RANKS = ("alpha", "alpha", "beta", "gamma")
# what sshd, ssh, Horovod, Gloo, MPI, NCCL, CUDA and Python wrote in the field reports, and the case
TEXTS = [
    ("S03", "Authentication refused: bad ownership or modes for directory /root/.ssh", "/root/.ssh has the wrong"),
    ("S03", "@         WARNING: UNPROTECTED PRIVATE KEY FILE!          @", "ssh ignored the private key"),
    ("S08", "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @", "another host key"),
    ("D01", "kex_exchange_identification: Connection closed by remote host", "an sshd dropped a login"),
    ("S07", "bash: line 1: orted: command not found", "finds no `orted`"),
    ("S07", "bash: orted: command not found", "finds no `orted`"),
    ("S02", "ModuleNotFoundError: No module named 'horovod'", "another one than the image's"),
    ("S02", "/usr/bin/python3: No module named horovod.runner", "another one than the image's"),
    ("H07", "ImportError: Extension horovod.torch has not been built: libfoo.so not found", "built without"),
    ("H07", "HorovodVersionMismatchError: Framework tensorflow installed with version 2.3.0 but found version 2.4.1.",
     "built against another torch"),
    ("H07", "ImportError: /usr/lib/python3/horovod/torch/mpi_lib_v2.cpython-37m-x86_64-linux-gnu.so: undefined symbol: "
     "_ZN6caffe28TypeMeta21_typeMetaDataInstanceE", "built against another torch"),
    ("H07", "RuntimeError: can't start new thread", "may start no more threads"),
    ("H07", "OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 64: Operation not permitted",
     "may start no more threads"),
    ("N02", "[alpha] mca_btl_tcp: connect() to 172.17.0.1 failed: Connection refused (111)", "docker0"),
    ("N05", "horovod.runner.common.util.network.NoValidAddressesFound: Horovod was unable to connect", "random ports"),
    ("N05", "Waiting for the hosts to acknowledge", "random ports"),
    ("N09", "NCCL WARN Call to connect timeout", "NCCL reached no other host"),
    ("N09", "NCCL WARN socketPollConnect: Connect to 10.0.0.4<56849> returned 113(No route to host) errno 115",
     "NCCL did not reach another host"),
    ("N09", "socketStartConnect: Connect to 172.17.0.2<38847> failed : Software caused connection abort",
     "NCCL did not reach another host"),
    ("N09", "NCCL WARN Connect to 10.0.0.4<40123> failed : Connection refused", "NCCL did not reach another host"),
    ("N09", "NCCL WARN Call to connect failed : Connection timed out", "NCCL did not reach another host"),
    ("N05", "WARNING: Open MPI failed to TCP connect: unable to complete a TCP connection", "MPI's own connections"),
    ("N10", "NCCL WARN Call to ibv_open_device failed", "RDMA card"),
    ("G07", "NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "lock enough memory"),
    ("G07", "NCCL WARN Call to ibv_create_qp failed", "lock enough memory"),
    ("G04", "Failed to initialize NVML: Unknown Error", "lost its GPUs (Unknown Error)"),
    ("G04", "RuntimeError: CUDA error: uncorrectable ECC error encountered", "its hardware"),
    ("G05", "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
     "nvidia-fabricmanager"),
    ("G05", "CUDA error: no kernel image is available for execution on the device", "no code for this GPU"),
    ("G05", "CUDA driver version is insufficient for CUDA runtime version", "driver is older"),
    ("G05", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "memory of its GPU"),
    ("G06", "NCCL WARN Call to posix_fallocate failed: No space left on device", "/dev/shm is used up"),
    ("G06", "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x (size 9)", "/dev/shm is used"),
    ("G06", "Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
     "/dev/shm is used up"),
    ("G06", "RuntimeError: DataLoader worker (pid 42) is killed by signal: Bus error.", "/dev/shm is used up"),
    ("G07", "RuntimeError: received 0 items of ancdata", "may open no more files"),
    ("G08", "NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000", "took the same GPU"),
    ("G08", "RuntimeError: CUDA error: invalid device ordinal", "numbered from 0"),
    ("H08", "RuntimeError: File not found or corrupted.", "torn"),
    ("H08", "gzip.BadGzipFile: Not a gzipped file (b'<!')", "torn"),
    ("H08", "OSError: [Errno 30] Read-only file system: '/data/x'", "may only read"),
    ("H08", "OSError: [Errno 28] No space left on device: '/data/x'", "a disk is full"),
    ("H01", "There are not enough slots available in the system to satisfy the 4 slots", "fewer slots"),
    ("H04", "W stall_inspector.cc:107] One or more tensors were submitted to be reduced, gathered or broadcasted by "
     "subset of ranks and are waiting for remainder of ranks for more than 60 seconds.", "waited for others"),
    ("H03", "ncclSystemError: System call failed: unhandled system error, NCCL version 2.19", "NCCL failed"),
    ("N05", "[/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.2]:1234 gloo", "Gloo lost"),
    ("N05", "Connection closed by peer: gloo/transport/tcp/pair.cc:598", "Gloo lost"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "text", "said"), TEXTS)
def test_a_text_is_recognised(case, text, said):
    causes = diagnose([Line("beta", 2, text)], RANKS)
    assert any(said in cause.message for cause in causes), causes
    assert all(cause.hosts == ("beta",) for cause in causes)
    assert any(sign.case == case and re.search(sign.pattern, text) for sign in SIGNS)


def test_every_sign_has_a_text():
    for sign in SIGNS:
        assert any(re.search(sign.pattern, text) for _, text, _ in TEXTS), sign


def test_nothing_is_made_of_an_ordinary_log():
    lines = ["hvdcompose: run x: 4 ranks", "epoch 1 loss 0.3", "NCCL INFO NET/IB : No device found.", "Accepted key"]
    lines.append("step 12 mean error 802.4")
    lines.append("NCCL INFO socketPollConnect: connect to 10.0.0.4<5> returned 111(Connection refused), retrying")
    lines.append("error: kex_exchange_identification: Connection closed by remote host")  # sshd's, of a probe
    assert diagnose([Line("alpha", None, text) for text in lines], RANKS) == []


def test_a_cause_is_told_once_with_all_its_hosts():
    text = "CUDA error: invalid device ordinal"
    (cause,) = diagnose([Line("beta", 2, text), Line("gamma", 3, text), Line("beta", 2, text)], RANKS)
    assert str(cause).startswith("beta, gamma: a rank asked for a GPU that its container does not have")


def test_what_follows_from_another_rank_s_end_is_told_only_where_nothing_else_is():
    lost = Line("alpha", 0, "gloo/transport/tcp/pair.cc:598 gloo Connection refused")
    torn = Line("beta", 2, "RuntimeError: File not found or corrupted.")
    assert [cause.hosts for cause in diagnose([lost], RANKS)] == [("alpha",)]
    assert [cause.hosts for cause in diagnose([lost, torn], RANKS)] == [("beta",)]


def test_ranks_that_are_missing_are_told_by_their_hosts():
    """As Horovod's stall_inspector.cc writes it."""
    lines = [
        "[0] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and",
        "Stalled ops: allreduce.x [missing ranks: 2, 3]",
    ]
    (cause,) = diagnose([Line("alpha", 0, text) for text in lines], RANKS)
    assert cause.hosts == ("beta", "gamma")
    assert cause.message.endswith("missing rank 2 (beta), rank 3 (gamma)")


def test_not_more_than_a_screen_can_hold():
    assert len(diagnose([Line("beta", 2, text) for _, text, _ in TEXTS], RANKS)) == 5
