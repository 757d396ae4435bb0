"""The public interface without ``await``."""

from __future__ import annotations

import threading

import pytest

import gamecast
from gamecast import blocking
from tests.patience import scaled


@pytest.mark.parametrize("url", ["memory://blocking?nodes=2", "embedded://"])
def test_threads_publish_and_iterate_without_an_event_loop(url: str) -> None:
    with blocking.connect(url, name="server") as cast:
        cast.subscribe("forest", "river")
        assert cast.publish("forest", "first").region == "forest"

        def publish_many() -> None:
            for receipt in [cast.publish_soon("river", number) for number in range(50)]:
                assert receipt.result(timeout=scaled(10)).region == "river"

        threads = [threading.Thread(target=publish_many) for _ in range(3)]
        for thread in threads:
            thread.start()
        seen: list[gamecast.Event] = []
        for event in cast:
            assert isinstance(event, gamecast.Event), event
            seen.append(event)
            if len(seen) == 151:
                break
        for thread in threads:
            thread.join()
        river = [event.sequence for event in seen if event.region == "river"]
        assert river == list(range(river[0], river[0] + 150))
        assert cast.statistics().published_events == 151
        plan = cast.plan()
        assert plan is not None
        assert plan.paths.keys() == {"forest", "river"}
        with pytest.raises(gamecast.InvalidPayload):
            cast.publish("forest", object())


def test_closing_from_another_thread_ends_iteration() -> None:
    cast = blocking.connect("memory://closing").open()
    cast.subscribe("forest")
    closer = threading.Timer(0.05, cast.close)
    closer.start()
    assert list(cast) == []
    closer.join()
    with pytest.raises(gamecast.NotConnected):
        cast.publish("forest", 1)
    cast.close()


def test_a_connection_that_cannot_open_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    with pytest.raises(gamecast.UsageError):
        blocking.connect("memory://").open()
    with pytest.raises(gamecast.Unreachable):
        blocking.connect("redis://127.0.0.1:1").open()
    assert threading.active_count() <= before
