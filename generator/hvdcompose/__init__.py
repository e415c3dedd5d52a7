"""One cluster.yaml to a Horovod training run on a few Docker hosts."""

__version__ = "0.1.0"
