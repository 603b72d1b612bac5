"""The functions and result objects behind the public namespace `florets`."""


class Typed(tuple[str, ...]):
    """The `key=value` texts of a command line: a public function takes them in place of a preset and keywords."""
