"""Results of a run: records, summary, report, plots."""
