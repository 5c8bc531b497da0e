"""Recipes that follow something that is there: their excerpts are the code as it stands."""

from typing import Final

import pytest

from tests.docs._pages import ROOT, titled

RECIPES: Final = ("adding-a-command.md", "adding-a-page.md")
EXCERPTS: Final = [
    (recipe, title, text)
    for recipe in RECIPES
    for language in ("python", "text")
    for title, text in titled(ROOT / "docs" / recipe, language)
]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_has_excerpts(recipe: str) -> None:
    """Without any the test below would say nothing."""
    assert len([each for each in EXCERPTS if each[0] == recipe]) >= 2


@pytest.mark.parametrize(
    ("title", "text"), [each[1:] for each in EXCERPTS], ids=[f"{each[0]}-{each[1]}" for each in EXCERPTS]
)
def test_an_excerpt_is_in_the_file_that_it_names(title: str, text: str) -> None:
    """Who follows a recipe looks for it there, and copies what it shows."""
    assert text in (ROOT / title).read_text()
