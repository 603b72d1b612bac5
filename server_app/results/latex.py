"""Tables as LaTeX."""

from collections.abc import Sequence

_ESCAPED = {
    **{character: rf"\{character}" for character in "&%$#_{}"},
    **{"±": r"$\pm$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"},
    **{"·": r"$\cdot$", "≥": r"$\geq$"},
}


def tabular(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a tabular, the first of the rows its head; the first column is left-aligned."""
    head, *body = (" & ".join(map(tex, row)) + r" \\" for row in rows)
    columns = f"l{'r' * (len(rows[0]) - 1)}"
    return [rf"\begin{{tabular}}{{{columns}}}", r"\hline", rf"{head} \hline", *body, r"\hline", r"\end{tabular}"]


def tex(text: str) -> str:
    """Return a text with the characters that LaTeX takes for its own escaped."""
    return "".join(_ESCAPED.get(character, character) for character in text)
