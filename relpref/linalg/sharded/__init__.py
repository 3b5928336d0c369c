"""One large system on several devices: its rows are dealt out over a mesh, and no device holds more of the matrix than its share."""

from relpref.linalg.sharded.edges import ShardedEdges, ShardedLaplacian

__all__ = ["ShardedEdges", "ShardedLaplacian"]
