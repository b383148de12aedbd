"""From a results file to a leaderboard that nobody has to trust: submissions, their verification, and the page."""
