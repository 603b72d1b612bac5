"""The functions and result objects behind the public namespace `florets`."""
