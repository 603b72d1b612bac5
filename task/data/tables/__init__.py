"""Tables of real sites: declared once, read with pandas, described by sums, prepared alike at every site."""
