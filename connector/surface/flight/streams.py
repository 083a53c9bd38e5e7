"""What a call sends: batches cut into pieces, and the end of whatever made them.

Owns the size of a piece and the moment at which a call is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import structlog

from accelerator.query import Query
from accelerator.query_errors import QueryCancelled, QueryError
from connector.surface.flight.refusals import refusal
from connector.surface.flight.watch import Followed

# Some clients take no message of more than 4 MB.
PIECE_BYTES = 2 * 1024 * 1024

log = structlog.get_logger(__name__)


class _Stream:
    """What a call sends, piece by piece, none larger than what every client takes.

    It is over with its last piece, with an error, or when gRPC drops it: that is how one learns
    that the client has left.
    """

    def __init__(self, over: Callable[[], None], followed: Followed) -> None:
        self._over = over
        self._followed = followed
        self._pieces: list[pa.RecordBatch] = []
        self._is_over = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        self._followed.is_sending = False
        try:
            while not self._pieces:
                batch = self._next_batch()
                if batch is None:
                    raise StopIteration
                self._pieces = [batch]
            piece = self._next_piece()
        except StopIteration:
            self.close()
            raise
        except Exception as error:  # noqa: BLE001  # a handler may raise nothing else
            self.close()
            raise refusal(error) from None
        self._followed.is_sending = True
        return piece

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent."""
        if not self._is_over:
            self._is_over = True
            self._pieces.clear()
            self._over()

    def _next_batch(self) -> pa.RecordBatch | None:
        raise NotImplementedError

    def _next_piece(self) -> pa.RecordBatch:
        while True:
            batch = self._pieces.pop()
            if batch.nbytes <= PIECE_BYTES or batch.num_rows == 1:
                return batch
            half = batch.num_rows // 2
            self._pieces += [batch.slice(half), batch.slice(0, half)]


class RowStream(_Stream):
    """The rows of a query, with the columns named as in `schema`."""

    schema: pa.Schema | None = None

    def __init__(self, query: Query, over: Callable[[], None], followed: Followed) -> None:
        super().__init__(over, followed)
        self._query = query

    def _next_batch(self) -> pa.RecordBatch | None:
        try:
            batch = self._query.next_batch()
            if batch is None or self.schema is None or self.schema is self._query.schema:
                return batch
            columns = [
                column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
                for column in batch.columns
            ]
            return pa.RecordBatch.from_arrays(columns, schema=self.schema)
        except QueryError as error:
            if self._query.rows and not isinstance(error, QueryCancelled):
                log.warning("a result broke off", error=error, rows=self._query.rows)
            raise


class TableStream(_Stream):
    """The rows of a table that is there."""

    def __init__(self, table: pa.Table, over: Callable[[], None], followed: Followed) -> None:
        super().__init__(over, followed)
        self._batches = iter(table.to_batches())

    def _next_batch(self) -> pa.RecordBatch | None:
        return next(self._batches, None)
