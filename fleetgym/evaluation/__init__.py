"""From agents and a suite to results: jobs, the loop in which an agent plays, executors, results files."""
