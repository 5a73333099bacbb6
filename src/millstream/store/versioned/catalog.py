"""Catalogs of Iceberg tables: opened by the properties that pyiceberg knows, trouble in words."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from millstream.core.errors import MillstreamError
from millstream.core.extras import told_where_missing
from millstream.core.secrets import without_secrets
from millstream.store.machine_failures import shortened

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

NAME = "default"  # what the properties describe; its tables are kept under it where it is of SQL


class IcebergCatalog:
    """One catalog; `written` are its properties with references in the place of secrets."""

    def __init__(self, written: Mapping[str, Any], used: Mapping[str, Any]) -> None:
        self._written, self._used = written, used

    def open(self) -> "Catalog":
        with told_where_missing():
            from pyiceberg.catalog import load_catalog  # noqa: PLC0415  (an extra)

            properties = {name: str(value) for name, value in self._used.items()}
            return load_catalog(properties.pop("name", NAME), **properties)

    def words(self, error: Exception) -> str:
        """What went wrong, in a line without secrets."""
        text = str(error).strip().split("\n")[0] or type(error).__name__
        return shortened(without_secrets(text, self._written, self._used))

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        """Trouble of the library and of what it reaches; it has no base class for its errors."""
        try:
            yield
        except MillstreamError:
            raise
        except Exception as error:
            raise MillstreamError(
                what, detail=self.words(error),
                hint="see that the catalog is there, and that table and options are right",
            ) from None  # fmt: skip
