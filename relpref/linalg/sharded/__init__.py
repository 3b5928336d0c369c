"""One large system on several devices: its rows are dealt out over a mesh, and no device ever holds it all."""

from relpref.linalg.sharded.edges import ShardedEdges
from relpref.linalg.sharded.laplacian import ShardedLaplacian

__all__ = ["ShardedEdges", "ShardedLaplacian"]
