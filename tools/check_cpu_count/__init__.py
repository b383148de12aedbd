"""How much of the CPU time that an agent burns is charged: burnt against charged, by the ways to burn it."""
