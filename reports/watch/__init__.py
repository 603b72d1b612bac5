"""The page of `florets watch`: a run's folder, read again and again while the run goes on."""
