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

CHANGE = """## What would change our verdict

- **The paper's profiles.** Ours are modelled. If nodes of several GPUs lose more to tensor parallelism than the model
  says, the savings grow (see *Tensor parallelism decides*). Profiles of one 8-GPU node per model would settle it.
- **Homo's last replica.** Our greedy Homo counts goodput only up to what is left of the demand, so its last replica is
  small. The paper does not say so of its own. A Homo without that rule costs more.
- **The comparator.** Section 6.3 says that both baselines use single-node replicas. So Homo-1 stands beside Homo.
- **The traces.** Availability and arrivals are generated. The published ones would decide the scarce cases.
"""
SPREAD_TEXT = """A node of n GPUs is given n^-a of the throughput that the model says: at a = 0.5 a node of eight has
35 %. The default case is played again, library included."""
SPREAD_READ = """It follows from measured runs on one to eight H100 and H200 with NVLink
([calibration](calibration.md#what-tensor-parallelism-loses)). Nodes of L40S, L4 and A10G have no NVLink, and were not
measured.

So the efficiency of tensor parallelism decides how much Coral saves. The estimates lie between the rows for 0 and 0.35,
and the paper's 3.14 beyond them. The mixture Qwen3-235B bears half of the rent, and mixtures lose most."""
FIGURE_1A = """The twin of Figure 1(a): prompt tokens per second, for a dollar an hour, of the best set of nodes for the
prefill of Qwen3-235B under 1.8 s. Published: 526 mixed, against 481, 460 and 476 for pure H100 set-ups. The units
differ, for the price of an L4 is not printed.

**The tension.** The figure says that mixing is worth 9 %. Section 6.3 says that Coral is three times cheaper than
replicas on one node. Both can be true only if one node of several GPUs is a poor buy, mixed or not. In our model
several small nodes of H100 are far better than the best single node, and mixing adds nothing to that. So what Coral
saves here comes from spanning nodes, which Homo-M may do as well."""
FIGURE_1B = """The twin of Figure 1(b): throughputs of all plans for decoding GPT-OSS 120B, as shares of the largest."""
HELIX_TEXT = """Section 6.6 compares with Helix (Mei et al., ASPLOS 2025). Its largest cluster needs Helix's simulator,
which is not run here. Its single cluster can be planned: 24 nodes (4 A100, 8 L4, 12 T4) for Llama-2-70B, with the node
throughputs that its artifact implies. They give its published placement the published objective, 1289.6 tokens per
second.

The objective is Helix's own: the most tokens per second that pass all layers, prompts included, by linear programming
over its graph. The templates' placements are judged by the same graph."""
HELIX_LIMITS = """The objective does not see latency. A token passes as many nodes as there are stages, whatever that
takes.

**What cannot be expressed.** A template's stage holds a block of layers that no other stage holds. Helix lets blocks
overlap, and a node takes over in the middle of its own (partial inference). A template knows one network between all
nodes. Helix's other clusters have slow links between groups of nodes, which decide its placements there. Neither is
needed for this cluster: its links carry 76,000 tokens per second."""

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
