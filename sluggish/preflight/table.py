"""Arrow and Parquet, where pyarrow is installed: columns of counts, or how many rows a file has."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from sluggish.evidence.source import EvidenceError

PARQUET = b"PAR1"
FEATHER = b"ARROW1"
STREAM = b"\xff\xff\xff\xff"
"""An Arrow stream begins with its continuation marker: what Hugging Face's datasets writes."""
END = STREAM + bytes(4)
"""Its writer closes it with an empty message (Arrow, "IPC Streaming Format")."""


def is_table(head: bytes) -> bool:
    """Whether these first bytes are Parquet's, or Arrow's as a file or as a stream."""
    return head.startswith((PARQUET, FEATHER, STREAM))


def columns(path: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    """Those of its columns that have one of these names, in whatever case, as Python values."""
    with _Arrow(path) as arrow:
        whole = arrow.read()
        kept = [name for name in whole.column_names if name.strip().lower() in names]
        if not kept:
            return {str(name): [] for name in whole.column_names}
        return {name: whole.column(name).to_pylist() for name in kept}


def rows(path: Path) -> int:
    """How many rows it has; of Parquet from the footer alone."""
    with _Arrow(path) as arrow:
        return arrow.rows()


class _Arrow:
    """pyarrow, with its many exceptions turned into one line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            self._head = file.read(8)
        try:
            self._pyarrow: Any = import_module("pyarrow")
        except ImportError:
            raise EvidenceError(
                f"{path}: Arrow and Parquet need pyarrow, which is not installed here: "
                "pip install pyarrow, or write the counts as CSV (rank,blocks)"
            ) from None

    def __enter__(self) -> _Arrow:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object):
        # ArrowInvalid is a ValueError, ArrowIOError an OSError, others are ArrowException alone;
        # a column's name that is no UTF-8 is a UnicodeDecodeError
        kinds = (self._pyarrow.ArrowException, OSError, ValueError, OverflowError, MemoryError)
        if isinstance(error, kinds) and not isinstance(error, EvidenceError):
            says = (str(error).splitlines() or [""])[0]
            raise EvidenceError(f"{self._path}: not readable as Arrow or Parquet: {says}") from None

    def read(self) -> Any:
        if self._head.startswith(PARQUET):
            return import_module("pyarrow.parquet").read_table(self._path)
        self._refuse_open_end()
        with self._opened() as reader:
            return reader.read_all()

    def rows(self) -> int:
        if self._head.startswith(PARQUET):
            return import_module("pyarrow.parquet").read_metadata(self._path).num_rows
        self._refuse_open_end()
        with self._opened() as reader:
            if self._head.startswith(STREAM):
                return sum(batch.num_rows for batch in reader)
            return sum(reader.get_batch(n).num_rows for n in range(reader.num_record_batches))

    def _refuse_open_end(self) -> None:
        """A stream that is cut between two batches is read to its end without a complaint."""
        if not self._head.startswith(STREAM):
            return
        with self._path.open("rb") as file:
            file.seek(-len(END), os.SEEK_END)
            if file.read() != END:
                raise EvidenceError(f"{self._path}: an Arrow stream without its end: cut short")

    def _opened(self) -> Any:
        ipc: Any = import_module("pyarrow.ipc")
        source = self._pyarrow.memory_map(str(self._path))
        opener: Callable[[Any], Any] = (
            ipc.open_stream if self._head.startswith(STREAM) else ipc.open_file
        )
        return opener(source)
