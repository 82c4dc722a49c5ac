"""Looking after a broker: what is said, and when it is started again. A socket stands in for the broker."""

from __future__ import annotations

import socket
import threading
from itertools import pairwise

import pytest

from penstock.channels.kafka_service import BrokerService
from penstock.channels.services import ServiceWatch


def a_listener(port: int = 0) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


@pytest.fixture
def port() -> int:
    with a_listener() as listener:
        return int(listener.getsockname()[1])


def test_a_broker_that_is_away_is_told_once_and_so_is_its_return(port: int) -> None:
    watch = ServiceWatch(BrokerService(), f"127.0.0.1:{port}")

    (away,) = watch.tick(10.0)
    assert "units wait until it is back" in away
    assert watch.tick(11.0) == []
    with a_listener(port):
        (back,) = watch.tick(40.0)
        assert "is back after 30 s" in back
        assert watch.tick(41.0) == []


def test_ours_is_started_again_until_it_takes_connections(port: int) -> None:
    tries: list[int] = []
    watch = ServiceWatch(BrokerService(), f"127.0.0.1:{port}", lambda: tries.append(1))

    (away,) = watch.tick(10.0)
    watch.tick(11.0)

    assert "it is started again" in away
    assert len(tries) == 2


def test_one_of_ours_that_never_comes_up_is_tried_after_growing_pauses_until_a_person_is_asked(
    port: int,
) -> None:
    tries: list[float] = []
    watch = ServiceWatch(BrokerService(), f"127.0.0.1:{port}", lambda: tries.append(now_s))
    told = []
    for now_s in range(0, 2000):
        told += watch.tick(float(now_s))

    away, asked = told
    assert "it is started again" in away
    assert "was started 20 times and did not stay up; a person is asked" in asked
    assert [later - sooner for sooner, later in pairwise(tries)][:7] == [1, 1, 2, 4, 8, 16, 30]
    assert len(tries) == 20
    assert watch.asks == (f"the broker at 127.0.0.1:{port} does not come up",)
    with a_listener(port):
        assert "is back after" in watch.tick(2001.0)[0]
        assert watch.asks == ()
    watch.tick(2002.0)
    assert len(tries) == 21, "a person has helped it: it is tried anew"


def test_one_of_several_addresses_is_enough(port: int) -> None:
    with a_listener() as other:
        watch = ServiceWatch(BrokerService(), f"127.0.0.1:{port}, 127.0.0.1:{other.getsockname()[1]}")
        assert watch.tick(1.0) == []


def test_one_that_takes_connections_and_never_answers_is_ended_after_a_while() -> None:
    with a_listener() as frozen:
        ended: list[int] = []
        address = f"127.0.0.1:{frozen.getsockname()[1]}"
        watch = ServiceWatch(BrokerService(), address, lambda: None, lambda: ended.append(1))

        assert watch.tick(10.0) == []
        assert watch.tick(20.0) == []
        assert not ended
        (told,) = watch.tick(26.0)
        assert "it hangs" in told
        assert ended == [1]


class StepsOf:
    """By how much the clock was set back, look by look."""

    def __init__(self, *steps_s: float) -> None:
        self._steps_s = list(steps_s)

    def since_last_s(self) -> float:
        return self._steps_s.pop(0)


def test_one_of_ours_is_started_anew_where_the_clock_was_set_back_by_more_than_it_can_wait_for(port) -> None:
    ended: list[int] = []
    tries: list[int] = []
    listener = a_listener(port)

    def end() -> None:
        listener.close()
        ended.append(1)

    watch = ServiceWatch(
        BrokerService(), f"127.0.0.1:{port}", lambda: tries.append(1), end, StepsOf(0.0, 5.0, 86_400.0)
    )
    assert watch.tick(10.0) == []
    assert watch.tick(11.0) == [], "it has waited for so much before a new one would be up"
    back, away = watch.tick(12.0)
    assert "was set back by 24 h" in back
    assert "it is started again" in away
    assert (ended, tries) == ([1], [1])
    theirs = ServiceWatch(BrokerService(), f"127.0.0.1:{port}", steps=StepsOf(86_400.0))
    with a_listener(port):
        assert theirs.tick(13.0) == [], "somebody else's is not ended"


def test_one_that_hangs_up_on_us_is_awake() -> None:
    with a_listener() as awake:
        ended: list[int] = []
        address = f"127.0.0.1:{awake.getsockname()[1]}"

        def hang_up() -> None:
            while True:
                try:
                    awake.accept()[0].close()
                except OSError:
                    return

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        watch = ServiceWatch(BrokerService(), address, lambda: None, lambda: ended.append(1))
        for now_s in (10.0, 20.0, 40.0):
            assert watch.tick(now_s) == []
        assert not ended
        awake.shutdown(socket.SHUT_RDWR)
    thread.join(5)
