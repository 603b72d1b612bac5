"""The Flower ClientApp: one handler per message kind."""

import os

# For the libraries that this process loads from here on; client_app.app limits those that Flower has loaded before.
os.environ.setdefault("OMP_NUM_THREADS", "1")
