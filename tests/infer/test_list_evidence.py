"""The evidence of a relation among choices of how to travel, whose pairs would make it a hundred
nats.
"""

from typing import Any

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

from relpref import PreferenceData
from relpref.data_loaders import load_modechoice
from relpref.infer import EP
from relpref.kernels import SquaredExponential
from relpref.models import xpgp
from relpref.models.preference import AMPLITUDE_PRIOR


@pytest.mark.slow
def test_choices_of_how_to_travel() -> None:
    """A quarter of the travelers is left out; of the others the evidence without the relation, with
    it, and with it shuffled.
    """
    choices = load_modechoice()
    rng = np.random.default_rng(0)
    everyone = choices.travelers.index.to_numpy()
    held = rng.choice(everyone, size=round(0.25 * everyone.size), replace=False)
    learned = choices.answers[~choices.answers["choice"].isin(held)]
    labels = choices.items.index.to_numpy()
    exchanged = pd.Series(rng.permutation(labels), index=labels)
    shuffled = {
        name: links.apply(lambda end: end.map(exchanged))
        for name, links in choices.relations.items()
    }

    def evidence(relations: Any, scale: float) -> float:
        data = PreferenceData.from_tables(choices.items, learned, relations)
        posterior: Any = EP(xpgp, hyperparameters="maximize").run(
            0,
            data,
            individual=False,
            attribute_kernel=SquaredExponential(shared_lengthscale=True),
            priors={"mode_amplitude": dist.HalfNormal(np.float64(scale))},
        )
        return float(posterior.log_evidence)

    usual = float(AMPLITUDE_PRIOR.scale)
    found = [
        evidence(choices.relations, 1e-6),
        evidence(choices.relations, usual),
        evidence(shuffled, usual),
    ]
    assert found == pytest.approx([-216.7, -214.4, -215.4], abs=0.3)
