"""What could stop a run: facts gathered from the hosts, and rules over them. Pure."""
