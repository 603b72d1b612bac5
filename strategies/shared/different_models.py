"""A check of the first models: several that are equal can never be told apart by their losses."""

from florets.strategies.base.models import Models


def refuse_equal(models: Models, algorithm: str) -> None:
    """Raise ValueError where there are several models and all are equal."""
    if models.count > 1 and (models.bank == models.bank[0]).all():
        raise ValueError(f"all {models.count} initial models are equal: {algorithm} cannot tell them apart, ever")
