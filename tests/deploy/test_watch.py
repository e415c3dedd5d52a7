"""Following a run: lines come once and in order, also when the way to the host breaks in between."""

from __future__ import annotations

import pytest

from hvdcompose.deploy.watch import follow_stamped, split_stamp
from hvdcompose.hosts.engine import Engine

STAMPS = [
    ("2026-01-01T00:00:00.123456789Z epoch 1", ("2026-01-01T00:00:00.123456789Z", "epoch 1")),
    ("2026-01-01T00:00:00Z   indented", ("2026-01-01T00:00:00Z", "  indented")),
    ("2026-01-01T00:00:00Z ", ("2026-01-01T00:00:00Z", "")),
    ("Error response from daemon: x", ("", "Error response from daemon: x")),
    ("2026 bottles", ("", "2026 bottles")),
    ("", ("", "")),
]


@pytest.mark.parametrize(("line", "parts"), STAMPS)
def test_docker_s_timestamp(line, parts):
    assert split_stamp(line) == parts


def test_a_stream_that_breaks_goes_on_after_the_last_line(program, tmp_path):
    """Docker's --since gives the line it names once more."""
    program(
        "docker",
        f"""
        case "$3" in
        logs)
            echo "$*" >> {tmp_path}/calls
            if [ $(wc -l < {tmp_path}/calls) -eq 1 ]; then
                echo '2026-01-01T00:00:01Z one'; echo '2026-01-01T00:00:02Z two'; exit 1
            fi
            echo '2026-01-01T00:00:02Z two'; echo '2026-01-01T00:00:03Z three' ;;
        container)
            running=true; [ $(wc -l < {tmp_path}/calls) -eq 1 ] || running=false
            echo '[{{"State": {{"Running": '$running'}}}}]' ;;
        esac
        """,
    )
    lines = list(follow_stamped(Engine("alpha", "c1"), "demo-launcher-1", tail="5"))
    assert [text for _, text in lines] == ["one", "two", "three"]
    first, second = (tmp_path / "calls").read_text().splitlines()
    assert first == "--context c1 logs --timestamps --follow --tail 5 demo-launcher-1"
    assert second == ("--context c1 logs --timestamps --follow --tail all --since 2026-01-01T00:00:02Z demo-launcher-1")


def test_lines_of_one_instant_or_out_of_order_are_all_shown(program):
    """Docker stamps stdout and stderr each by itself, before it writes them to one log."""
    program(
        "docker",
        """
        case "$3" in
        logs) for line in '2Z a' '2Z b' '1Z c' '3Z d'; do echo "2026-01-01T00:00:0$line"; done ;;
        container) echo '[{"State": {"Running": false}}]' ;;
        esac
        """,
    )
    assert [text for _, text in follow_stamped(Engine("alpha", "c1"), "x")] == ["a", "b", "c", "d"]


def test_a_container_that_is_gone_ends_the_view(program):
    program(
        "docker",
        """
        [ "$3" = logs ] && echo '2026-01-01T00:00:01Z one' && exit 0
        echo 'Error response from daemon: No such container: x' >&2; exit 1
        """,
    )
    assert [text for _, text in follow_stamped(Engine("alpha", "c1"), "x")] == ["one"]
