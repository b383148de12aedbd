"""Planning for one's own traffic: traces become instances, plans are simulated, and their risk is measured."""
