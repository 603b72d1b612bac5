"""The arithmetic of clustered federated learning: functions on arrays, nothing else.

No Flower, no torch, no logging and no clock in here; randomness is passed in as a NumPy generator. Every
algorithm of this project is a thin Strategy that speaks messages and calls these functions.

One alphabet, used by every module of this folder and by the strategies:

==================  =========  ======================================================================
name                shape      meaning
==================  =========  ======================================================================
``M``                          clients whose loss vectors are looked at
``P``                          participants of a round: clients whose updates are aggregated
``K``                          models
``C``                          clusters found, at most ``K``
``R``                          parameters of one model, buffers included
``n``                          examples of a client
``losses``          (M, K)     mean per-sample loss of each model on each client's training data
``clusters``        (M,)       cluster of each client, numbered 0.. in order of first appearance
``assignment``      (M,)       model of each client
``bank``            (K, R)     the models, flat
``updates``         (P, R)     the participants' models after local training, flat
``gram``            (M, M)     inner products of the clients' gradient profiles
``weights``         (P,)       example counts ``n``
==================  =========  ======================================================================

A *cluster* is a group of clients, a *model* a parameter set; *label* is kept for the class of a sample. The
rows of client arrays are in the order of client keys, so that no sum depends on the order in which replies
arrive.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
