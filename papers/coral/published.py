"""State what the paper prints of its evaluation."""

#: Hourly cost of Homo and Cauchy over Coral's (sections 6.3 and 6.5; scarce: 6.4, lower cost at lower goodput).
COST = {
    ("core", "default"): (1.62, 1.60),
    ("extended", "default"): (3.14, 2.66),
    ("core", "large-heavy"): (1.82, 1.78),
    ("extended", "large-heavy"): (2.79, 3.47),
    ("core", "small-heavy"): (1.1, 1.1),
    ("extended", "small-heavy"): (2.34, 1.64),
    ("core", "scarce"): (1.0, 1.51),
    ("extended", "scarce"): (1 / 1.52, 1.25),
}
#: Coral's goodput over Homo's and Cauchy's, scarce (section 6.4).
GOODPUT = {"core": (1.24, 1.0), "extended": (7.64, 2.39)}
#: Mean seconds of the allocation ILP, with Gurobi on 32 cores (sections 6.3, 6.4).
SOLVE_S = {
    ("core", "default"): 0.24,
    ("extended", "default"): 9.68,
    ("core", "scarce"): 0.11,
    ("extended", "scarce"): 41.0,
}

#: Rent of a model over Coral's, Homo's and Cauchy's (section 6.3).
BY_MODEL = {("core", "Qwen3-32B"): ("2.02", "1.88"), ("extended", "Qwen3-235B"): ("4.93", "4.08")}
