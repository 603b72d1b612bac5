"""Two-phase mixed regression: moment descent on anchors, then refinement by all clients."""
