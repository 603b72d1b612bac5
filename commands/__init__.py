"""The subcommands of `florets`, thin over the public functions."""
