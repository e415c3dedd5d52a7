"""What the user wrote: cluster.yaml text in, a validated `Cluster` or every mistake at once out."""
