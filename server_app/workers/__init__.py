"""Worker processes of the in-process engine: each does the work of some clients of an exchange."""
