"""Tables become validated, immutable arrays with labels; nothing here knows about inference."""

from relpref.data.comparisons import Comparisons, best_worst, choices, orderings
from relpref.data.graph import Graph, ScaleReference, Spectrum
from relpref.data.links import Links
from relpref.data.preference import PreferenceData
from relpref.data.rankings import Rankings
from relpref.data.relation import Relation
from relpref.data.relation_data import RelationData, RelationValues, read_relation
from relpref.data.tables import Table, read_table

__all__ = [
    "Comparisons",
    "Graph",
    "Links",
    "PreferenceData",
    "Rankings",
    "Relation",
    "RelationData",
    "RelationValues",
    "ScaleReference",
    "Spectrum",
    "Table",
    "best_worst",
    "choices",
    "orderings",
    "read_relation",
    "read_table",
]
