"""Read the reply to `train.probe`: a client's update of its own model, and its vector on the probe."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.layout import Entry, Layout, MalformedMessage, read_array
from florets.task.wire.replies import Update, read_update


@dataclass(frozen=True, kw_only=True)
class ProbeUpdate(Update):
    """Reply to `train.probe`.

    Attributes
    ----------
    profile
        The client's gradient on the probe, or what local training changes in it, float32 (d_hat,).
    """

    profile: npt.NDArray[np.float32]

    @property
    def others(self) -> npt.NDArray[np.floating]:
        """The profile vector."""
        return self.profile


def read_probe_update(content: RecordDict, layout: Layout, model: int, length: int) -> ProbeUpdate:
    """Read the update of `model` and a profile vector of `length` entries.

    Raises
    ------
    MalformedMessage
        If keys, types, shapes or a value is wrong.
    """
    others = {name: record for name, record in content.items() if name != kinds.PROFILE}
    update = read_update(RecordDict(others), layout, model)
    record = content.get(kinds.PROFILE)
    if not isinstance(record, ArrayRecord) or list(record) != [kinds.PROFILE]:
        raise MalformedMessage(f"the reply must hold one array {kinds.PROFILE!r} in the record {kinds.PROFILE!r}")
    profile = read_array(record[kinds.PROFILE], Entry(kinds.PROFILE, (length,), "float32", 0)).astype(np.float32)
    if not np.isfinite(profile).all():
        raise MalformedMessage("the profile vector holds NaN or infinite values")
    return ProbeUpdate(**vars(update), profile=profile)
