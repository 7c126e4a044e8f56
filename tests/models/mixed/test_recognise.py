from streammc import models
from streammc.models.mixed.effect_terms import is_mixed_model, is_table_model
from streammc.models.mixed.mixed_model import MixedModel, TableModel


def test_a_table_model_is_recognised_and_a_regression_is_not():
    table, mixed = object.__new__(TableModel), object.__new__(MixedModel)
    assert is_table_model(table)
    assert is_mixed_model(mixed)
    assert not is_table_model(models.logistic())
    assert not is_mixed_model(models.logistic())
