"""From what is wanted and what stands to a plan, and from the plan to the hosts."""
