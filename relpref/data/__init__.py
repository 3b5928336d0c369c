"""Tables become validated, immutable arrays with labels; nothing here knows about inference."""

from relpref.data.answers import Comparisons
from relpref.data.composed import choices, orderings
from relpref.data.graph import Graph, ScaleReference
from relpref.data.links import Links
from relpref.data.preference import PreferenceData
from relpref.data.rankings import Rankings
from relpref.data.relation import Relation
from relpref.data.relation_data import RelationData
from relpref.data.relation_tables import read_relation
from relpref.data.relation_values import RelationValues
from relpref.data.spectrum import Spectrum
from relpref.data.table_files import read_table
from relpref.data.tables import Table

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
    "choices",
    "orderings",
    "read_relation",
    "read_table",
]
