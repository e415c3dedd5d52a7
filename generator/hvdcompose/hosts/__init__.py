"""The only door to Docker and to the hosts: contexts, engines, images, keys, files. Decides nothing."""
