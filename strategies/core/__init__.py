"""The arithmetic of clustered federated learning: functions on arrays, nothing else.

No Flower, no torch, no logging and no clock; randomness is passed in. One alphabet: M clients whose losses are looked
at, P participants whose updates are aggregated, K models, C clusters found, R parameters of one model, buffers
included, n examples of a client.

``losses`` (M, K) are mean losses per sample, ``clusters`` (M,) numbered from 0 in order of first appearance,
``assignment`` (M,) the model of each client, ``bank`` (K, R) the models, ``updates`` (P, R) the participants' models
after local training, ``gram`` (M, M) inner products of gradient profiles, ``weights`` (P,) example counts. A *label*
is the class of a sample. The rows of client arrays are in the order of client keys, so that no sum depends on the
order in which replies arrive.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
