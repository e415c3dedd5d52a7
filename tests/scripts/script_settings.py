"""The settings of a launcher, for the tests of its scripts."""

from __future__ import annotations

SETTINGS = {
    "cluster": "demo",
    "host": "alpha",
    "address": "10.0.0.1",
    "interface": None,
    "port": 12345,
    "controller": "gloo",
    "np": 4,
    "start_timeout": 60,
    "output": None,
    "prepare": None,
    "keep": 50,
    "mounts": {},
    "secrets": [],
    "hosts": [
        {"host": "alpha", "address": "10.0.0.1", "slots": 2},
        {"host": "beta", "address": "10.0.0.2", "slots": 1},
        {"host": "gamma", "address": "10.0.0.3", "slots": 1},
    ],
}
