"""Play and train a policy learned by PPO on the margins of workloads: one small network, shared by all of them."""
