"""Cards: the measured agreement of a judge with people, as records and files."""
