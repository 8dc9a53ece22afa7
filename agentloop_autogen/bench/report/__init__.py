"""The report of the benchmark: the paper's tables and figures from result files."""
