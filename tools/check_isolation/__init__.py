"""What an agent of an official run can reach on this machine: every door is tried, from outside and from inside."""
