"""Files that `florets export` copies next to its models; they need nothing of Florets."""
