"""From a `Cluster` to the text of each host's Compose file. Pure, but for reading the templates."""
