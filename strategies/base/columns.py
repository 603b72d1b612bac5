"""The columns of the clients' tables: one order for all, agreed by their names."""

from collections.abc import Mapping

from flwr.app import ConfigRecord

from florets.task.wire import kinds
from florets.task.wire.columns import column_difference


class TableColumns:
    """Names of the input columns in the order in which every client reads its table; none before a table came."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()

    def agree(self, tables: Mapping[str, tuple[str, ...]]) -> None:
        """Take the order of the first client with a table, by key; once taken it holds for the whole run.

        Parameters
        ----------
        tables
            Names of each client's columns, by client key; none where its data are no table.
        """
        known = {key: names for key, names in tables.items() if names}
        if known and not self.names:
            self.names = known[min(known)]

    def problem(self, key: str, names: tuple[str, ...]) -> str | None:
        """Return why a client's table does not fit; None where it does, or the client has none."""
        difference = column_difference(names, self.names) if names else ""
        if not difference:
            return None
        return (
            f"client {key} cannot take part: of the columns that the run's tables have, its table {difference}. Give "
            "all tables the same columns, or name the inputs in task.data_options.columns"
        )

    def add_to(self, config: ConfigRecord) -> ConfigRecord:
        """Return the settings of a message, with the agreed order where there is one."""
        if not self.names:
            return config
        config = config.copy()
        config[kinds.COLUMNS] = list(self.names)
        return config
