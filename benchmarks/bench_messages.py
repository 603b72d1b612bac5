"""Cost of a message through the in-process engine: an exchange with clients that answer at once.

Run: ``python benchmarks/bench_messages.py``. Compare it with a run's `seconds` under `engine=flwr`.
"""

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from florets.engines.local_grid import LocalGrid

PARAMETERS, MODELS, REPEATS = 44_426, 5, 15


def main() -> None:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(RecordDict(), reply_to=message)

    models = ArrayRecord({f"{k}/w": Array(np.zeros(PARAMETERS, dtype=np.float32)) for k in range(MODELS)})
    print(f"{'nodes':>6}{'ms a message, empty':>22}{'ms a message, 5 models':>24}")
    for nodes in (25, 100, 1000):
        grid = LocalGrid(app, nodes)
        row = []
        for content in ({}, {"arrays": models}):
            times = []
            for _ in range(REPEATS):
                begin = time.process_time()
                messages = [Message(RecordDict(dict(content)), node, "train") for node in grid.get_node_ids()]
                grid.send_and_receive(messages)
                times.append((time.process_time() - begin) / nodes)
            row.append(1000 * statistics.median(times))
        print(f"{nodes:6}{row[0]:22.4f}{row[1]:24.4f}")


if __name__ == "__main__":
    main()
