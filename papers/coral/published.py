"""What the paper prints of its evaluation, the page's introduction, and the table of inputs."""

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

HEAD = """# Coral's evaluation, reproduced

Mei et al., "Coral: Cost-Efficient Multi-LLM Serving over Heterogeneous Cloud GPUs", arXiv:2605.04357, section 6.
This page is written by

    python -m fleetgym.papers.coral              # ten seeds
    python -m fleetgym.papers.coral --seeds 1    # the first one

which keeps finished computations and goes on where it was stopped. **Only orderings and ratios are to be compared**:
the paper's profiles, lengths, prices and availability are not published, and what stands in for them is listed at
the end.

The method is the paper's: prefill and decode replicas apart, templates of at most N_max = 6 nodes with less than
rho = 12 times the model's memory, an integer program per epoch with a start-up penalty, five epochs per seed. The
baseline "Homo" does not say whether a homogeneous replica may span nodes, which alone moves the ratios by 30 %: it is
given as **Homo-1** (single nodes) and **Homo-M** (several nodes of one type). Cauchy is an integer program over
combinations of one prefill node and several decode nodes.
"""

INPUTS_HEAD = ("input", "the paper", "here")
INPUTS = (
    ("models, layers, SLOs", "Table 3", "the same"),
    ("GPUs, relative costs", "Table 1", "the same; nodes of n GPUs cost n times one GPU"),
    ("price of an L4", "not printed", "*substituted*: 0.8048 USD/h; ratios do not depend on it"),
    (
        "regions",
        "AWS US-East-2, AP-Northeast-2, GCP US-Central-1",
        "*assumed* price levels 1, 1.25, 1.1",
    ),
    (
        "node throughput T_j(g)",
        "profiled",
        "*modelled*: `fleetgym.hardware.performance.replica`, calibrated on Helix's layer times and aiconfigurator's "
        "operator times (dense models: 4 to 7 % mean error for decoding, 4 to 18 % for prompts); the fit to "
        "measured runs where there is one",
    ),
    ("weights", "not printed", "16 bit; GPT-OSS 4 bit, as published. rho counts 16-bit bytes"),
    (
        "lengths",
        "Azure 2023, BurstGPT",
        "Azure 2023 means; *substituted* for BurstGPT: ShareGPT (74 in, 229 out)",
    ),
    (
        "arrival rates",
        "10 and 25 req/s per model, traces",
        "the same means; *generated*: lognormal factors per epoch, sd 0.15",
    ),
    (
        "availability",
        "a trace of Alibaba's, scaled",
        "*generated*: lognormal around fixed proportions. Default: the least multiple at which every method serves "
        "all. Scarce: 1.25 and 1.75 times what the linear relaxation needs, and from there upwards by tenths until "
        "Coral serves all",
    ),
    ("network between nodes", "not printed", "*assumed*: 25 Gbit/s, 0.5 ms"),
)
