"""Command lines of programs that run as several processes with the same words; standard library only."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import NoReturn


def environment_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Return this process's rank from what the launcher set, before Horovod runs; alone it is 0."""
    for variable in ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        if environment.get(variable, "").isdigit():
            return int(environment[variable])
    return 0


class Parser(argparse.ArgumentParser):
    """Lets only one of the ranks, which all get the same words, print help or complain about them."""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End this process; the ranks that keep silent do so a little later."""
        if environment_rank() != 0:
            # The launcher ends all ranks when the first one ends: leave that to the rank that speaks.
            time.sleep(5)
            sys.exit(status)
        super().exit(status, message)
        raise AssertionError  # argparse's exit never returns

    def error(self, message: str) -> NoReturn:
        """End with exit code 2 and one line on stderr."""
        self.exit(2, f"{self.prog}: error: {message} (--help lists the options)\n")

    def print_help(self, file: object = None) -> None:
        """Print the help on stdout, once."""
        if environment_rank() == 0:
            super().print_help()


def number(kind: type[int] | type[float], rule: str, holds: Callable[[float], bool]) -> Callable[[str], int | float]:
    """Return an argparse type that takes numbers for which `holds`, and says `rule` of all others."""

    def parse(text: str) -> int | float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        # A comparison with NaN never holds, so that one message covers both.
        if not holds(value) or math.isinf(value):
            raise argparse.ArgumentTypeError(f"'{text}' is not {rule}")
        return value

    return parse
