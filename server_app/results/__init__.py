"""What a run leaves behind: records, summary, report, plots."""
