"""The page of tables is the tables."""

from tests.docs._schema import SCHEMA, schema


def test_the_page_of_tables_is_current() -> None:
    """People read it to write their own queries; `make schema` writes it anew."""
    assert SCHEMA.read_text() == schema()
