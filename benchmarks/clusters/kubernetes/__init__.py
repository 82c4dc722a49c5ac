"""A real Kubernetes API server with etcd, built from the Go proxy, and nodes that run pods as processes.

The API server, its storage and Spark's Kubernetes backend are the real ones. What stands in is the node: no
kubelet, no containers, no scheduler. `process_node` says what it does of those, and what it does not.
"""
