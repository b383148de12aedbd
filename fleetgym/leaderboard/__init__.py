"""Make submissions, verify them, run seasons, and write the pages of leaderboards and reports."""
