"""Virtual Docker hosts on this machine (docker-in-docker), to try a cluster.yaml where there is no cluster.

`spec` and `plan` decide and touch nothing; `engine` is the door to the machine's own Docker; `images`, `ssh`
and `operations` act. Nothing here prints: progress goes through a `Report`.
"""
