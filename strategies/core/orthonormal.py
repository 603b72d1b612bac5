"""Make the first models orthogonal to each other."""

import numpy as np

from florets.strategies.core import FloatArray


def orthonormal_rows(bank: FloatArray) -> FloatArray:
    """Return models that are orthogonal to each other, each with the length that it had.

    Row k keeps a positive inner product with the original row k: it is that row less its part along the
    rows before it, brought back to its length. The first row changes only by rounding; one model is
    returned as it is.

    Parameters
    ----------
    bank : (K, R) float64
        Linearly independent rows, K <= R. Not modified.

    Returns
    -------
    (K, R) float64

    Raises
    ------
    ValueError
        If there are more models than parameters, or if a row depends on those before it.

    Source: CLoVE, analysis (orthonormal first models).
    Deviation: lengths are kept, because networks do not train from weights scaled to length 1.
    """
    num_models, num_parameters = bank.shape
    if num_models > num_parameters:
        raise ValueError(
            f"{num_models} models of {num_parameters} parameters cannot be orthogonal: "
            f"use at most {num_parameters} models, or strategy.init=different."
        )
    if num_models == 1:
        return np.array(bank, dtype=np.float64)
    norms = np.linalg.norm(bank, axis=1)
    basis, triangle = np.linalg.qr(bank.T)
    along = np.diagonal(triangle)
    dependent = np.abs(along) <= norms * num_parameters * np.finfo(np.float64).eps
    if dependent.any():
        raise ValueError(
            f"model {int(np.argmax(dependent))} is zero or a combination of the models before it "
            f"and cannot be made orthogonal to them: start from different models, or use strategy.init=different."
        )
    rows: FloatArray = basis.T * (np.sign(along) * norms)[:, np.newaxis]
    return rows
