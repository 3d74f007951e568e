"""A recipe tells whose step is meant, in Python and in the files of all versions."""

from dataclasses import replace

import pytest

from fitroom.errors import InputError, UnknownNameError
from fitroom.recipe import Recipe, Remat


@pytest.mark.parametrize("remat", ["none", "blocks", Remat(budget="6GiB"), {"segments": [["conv1", "add"]]}])
def test_remat_of_any_kind_is_for_the_step_of_fitroom(remat):
    recipe = Recipe(remat=remat)
    assert recipe.step == "fitroom"
    assert recipe.step_for(64) == "fitroom"
    assert recipe.recomputes == (remat != "none")


def test_without_remat_it_is_the_step_of_keras_unless_the_batch_is_split():
    assert Recipe().step is None
    assert Recipe().step_for(64) == "keras"
    assert Recipe(micro_batch=32).step_for(64) == "fitroom"
    assert Recipe(micro_batch=64).step_for(64) == "keras"


def test_the_step_of_fitroom_that_recomputes_nothing_has_one_value_and_one_form_in_files():
    recipe = Recipe(step="fitroom")
    assert recipe == Recipe(remat="none")
    assert recipe.to_dict() == {"remat": "none"}
    assert Recipe(**recipe.to_dict()) == recipe


def test_a_recipe_without_a_step_has_none_in_files():
    assert Recipe(micro_batch=8).to_dict() == {"micro_batch": 8}
    assert replace(Recipe(micro_batch=8), remat="blocks").to_dict() == {"micro_batch": 8, "remat": "blocks"}


@pytest.mark.parametrize("other", [{"remat": "none"}, {"remat": "blocks"}, {"micro_batch": 8}])
def test_the_step_of_keras_is_refused_with_what_it_cannot_do(other):
    with pytest.raises(InputError, match=f"step='keras' with {next(iter(other))}"):
        Recipe(step="keras", **other)


def test_an_unknown_step_is_refused_with_the_known_ones():
    with pytest.raises(UnknownNameError, match="known are: keras, fitroom"):
        Recipe(step="torch")
