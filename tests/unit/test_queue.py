"""The bounded queue between readers and the applier."""

from __future__ import annotations

from accelerator.batch import Batch, empty_changes
from connector.queue import EMPTY_BATCH_BYTES, BatchQueue


def batch(nbytes: int, generation: int = 1) -> Batch:
    return Batch(empty_changes(), generation, nbytes=nbytes)


class Offers:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def test_batches_come_out_in_the_order_they_went_in() -> None:
    """Per shard the order of the stream is the order of the queue."""
    queue = BatchQueue(1000, Offers())
    batches = [batch(1, generation) for generation in range(5)]
    for each in batches:
        queue.offer(each)

    taken = queue.take(10_000, 3) + queue.take(10_000, 3)

    assert taken == batches
    assert len(queue) == 0
    assert queue.nbytes == 0


def test_a_group_ends_before_it_outgrows_its_bytes() -> None:
    """Memory of one transaction is bounded by bytes, not by the number of pages."""
    queue = BatchQueue(10_000, Offers())
    for _ in range(4):
        queue.offer(batch(1000))

    assert len(queue.take(2 * (1000 + EMPTY_BATCH_BYTES), 64)) == 2


def test_a_batch_larger_than_a_group_is_taken_alone() -> None:
    """One huge page must not block the stream for ever."""
    queue = BatchQueue(10, Offers())
    queue.offer(batch(5000))
    queue.offer(batch(5000))

    assert len(queue.take(100, 64)) == 1
    assert len(queue.take(100, 64)) == 1


def test_room_ends_at_the_bound_and_comes_back() -> None:
    """Producers ask before they read, so the queue outgrows its bound by what is in flight only."""
    queue = BatchQueue(1000, Offers())
    assert queue.has_room()
    queue.offer(batch(1000))
    assert not queue.has_room()
    queue.take(10_000, 64)
    assert queue.has_room()


def test_every_offer_wakes_the_writer() -> None:
    """A quiet stream is applied at once."""
    offers = Offers()
    queue = BatchQueue(1000, offers)
    queue.offer(batch(1))
    queue.offer(batch(1))
    assert offers.count == 2


def test_an_abandoned_queue_drops_what_it_has_and_what_still_comes() -> None:
    """A page in flight when its scan is given up must give its ticket back, and is not applied."""
    offers = Offers()
    queue = BatchQueue(1000, offers)
    early, late = batch(1, 1), batch(1, 2)
    dropped: list[Batch] = []
    queue.offer(early)

    queue.abandon(dropped.append)
    queue.offer(late)

    assert dropped == [early, late]
    assert queue.take(1000, 64) == []
    assert queue.has_room()
    assert offers.count == 1
