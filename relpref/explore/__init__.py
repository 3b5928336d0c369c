"""Choice of the next question, and the gain that its answer is expected to bring."""

from relpref.explore.choices import next_choices
from relpref.explore.choose import next_pairs
from relpref.explore.forecast import Gaps as Gaps
from relpref.explore.scores import DEFAULT as DEFAULT
from relpref.explore.scores import SCORES, Score, TopK
from relpref.explore.scores import Bald as Bald
from relpref.explore.scores import Eubo as Eubo
from relpref.explore.scores import LookAhead as LookAhead
from relpref.explore.scores import MutualInformation as MutualInformation
from relpref.explore.scores import Random as Random
from relpref.explore.scores import Ratio as Ratio
from relpref.explore.scores import Scorer as Scorer
from relpref.explore.scores import State as State
from relpref.explore.scores import Variance as Variance
from relpref.explore.stopping import ExpectedGain as ExpectedGain
from relpref.explore.stopping import expected_gain, why

__all__ = ["SCORES", "Score", "TopK", "expected_gain", "next_choices", "next_pairs", "why"]
