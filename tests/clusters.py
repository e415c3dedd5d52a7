"""Clusters for tests, read from the text that a user would write."""

from __future__ import annotations

from hvdcompose.config.model import Cluster
from hvdcompose.config.source import parse_cluster

TWO = """\
name: demo
image: trainer:1
hosts:
  alpha: {address: 10.0.0.1, slots: 2}
  beta: {address: 10.0.0.2}
train:
  command: python train.py
"""


def cluster_of(text: str = TWO) -> Cluster:
    """Return the cluster that a text describes; every folder it names is there."""
    return parse_cluster(text, source="cluster.yaml", is_folder=lambda _: True)
