"""Tables become validated, immutable arrays with labels; nothing here knows about inference."""

from relpref.data.comparisons import Comparisons as Comparisons
from relpref.data.edges import EdgeTable as EdgeTable
from relpref.data.graph import Graph as Graph
from relpref.data.graph import ScaleReference as ScaleReference
from relpref.data.graph import Spectrum as Spectrum
from relpref.data.preference import PreferenceData
from relpref.data.rankings import Rankings
from relpref.data.relation import Relation
from relpref.data.relation_data import RelationData
from relpref.data.relation_data import RelationValues as RelationValues
from relpref.data.relation_data import read_relation as read_relation
from relpref.data.tables import Table as Table
from relpref.data.tables import read_table as read_table

__all__ = ["PreferenceData", "Rankings", "Relation", "RelationData"]
