"""The posterior of classifiers: probabilities of classes, with the user's own labels."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

from relpref.compiled import float64
from relpref.data import Rankings, RelationData
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.call import Call, Values
from relpref.infer.latents import written
from relpref.infer.layout import Layout
from relpref.likelihoods import ProbitBernoulli, as_likelihood
from relpref.posterior.arviz import Groups, plain_coordinates
from relpref.posterior.base import Posterior
from relpref.posterior.gaussian import Belief, Floats, Positions
from relpref.posterior.tables import label_index, objects

DECISION = "decision"  # the observed site of a classifier's program, shape (m, k)
Examples = Rankings | RelationData
_NUMBERS = 10_000_000  # in the projections of examples that are classified together: 80 MB


@dataclass(frozen=True, eq=False, repr=False)
class ClassPosterior(Posterior):
    """The posterior of a classifier's weights, and its predictions for known and new examples.

    Attributes
    ----------
    data : Rankings or RelationData
        The examples that were learned from.

    Examples
    --------
    >>> from relpref import Rankings
    >>> ballots = Rankings.from_orders([["tea", "coffee"], ["coffee", "tea"]] * 4)
    >>> classes = ["late", "early"] * 4
    >>> from relpref.infer import EP
    >>> from relpref.models import ranking_classifier
    >>> posterior = EP(ranking_classifier).run(0, ballots.with_labels(classes))
    >>> posterior.predict_proba(ballots[:2]).shape
    (2, 2)
    """

    kind: ClassVar[Literal["classes"]] = "classes"
    data: Examples = field(kw_only=True)

    def reported(
        self, belief: Belief | None = None, chosen: Positions | slice = slice(None)
    ) -> pd.DataFrame:
        table = (self if belief is None else replace(self, belief=belief)).latent()
        return table if table.columns.nlevels == 1 else table.stack(level=1, future_stack=True)

    def displayed(self, draws: Floats) -> None:
        """Features of examples may leave some of a latent function's variance out."""

    @property
    def classes(self) -> tuple[Any, ...]:
        """Labels of the classes, in the order of the columns of `predict_proba`."""
        return self.data.classes

    def examples(self) -> tuple[pd.DataFrame, Positions]:
        """Table of the training examples with their ``class``, and positions of the classes.

        Edges in both directions are there once.
        """
        distinct = getattr(self.data, "distinct", None)
        kept = slice(None) if distinct is None else distinct
        outcome = self.data.outcomes[kept]
        labels = self.data.index.to_frame(index=False).iloc[kept].reset_index(drop=True)
        return labels.assign(**{"class": objects(self.classes)[outcome]}), outcome

    def predict_proba(self, data: Examples | None = None) -> pd.DataFrame:
        """Probability of each class.

        Parameters
        ----------
        data : Rankings or RelationData, optional
            Rankings of the same items (in any order), or edges between the same nodes in the same
            order, possibly followed by new ones: ``posterior.data.extended(nodes,
            objects).asking(rows, columns)``; their labels are not looked at. The training examples
            by default.

        Returns
        -------
        DataFrame
            One row for each example (ranker, or source and target), one column for each class; rows
            add up to 1.

        Raises
        ------
        UnsupportedProgramError
            If the posterior does not know its program any more.
        DataError
            If the examples are of other items or nodes, or of nodes in another order.
        """
        asked = self._asked(data)
        chances = chances_of_classes(self._decide(asked)[2])
        average = np.tensordot(self.belief.weights, chances, axes=1)
        return pd.DataFrame(average, asked.index, label_index(self.classes, "class"))

    def predict(self, data: Examples | None = None) -> pd.Series:
        """The most probable class of each example; arguments as in `predict_proba`."""
        table = self.predict_proba(data)
        labels = objects(self.classes)[np.argmax(table.to_numpy(), axis=1)]
        return pd.Series(labels, index=table.index, name="class")

    def latent(self, data: Examples | None = None) -> pd.DataFrame:
        """Posterior of the latent functions, before noise; arguments as in `predict_proba`.

        Returns
        -------
        DataFrame
            ``mean`` and ``sd`` for two classes; with more, one column of each for every decision,
            ``(mean, class)``: for the class at which the decision stops.
        """
        asked = self._asked(data)
        means, variances, _ = self._decide(asked)
        mean = np.tensordot(self.belief.weights, means, axes=1)
        squares = variances + np.square(means - mean)
        sd = np.sqrt(np.tensordot(self.belief.weights, squares, axes=1))
        columns: Any = ["mean", "sd"]
        if mean.shape[1] > 1:
            columns = pd.MultiIndex.from_product([columns, self.classes[:-1]])
        return pd.DataFrame(np.hstack([mean, sd]), asked.index, columns)

    def _asked(self, data: Examples | None) -> Examples:
        """The examples without their labels, as the program wants them."""
        self._warn_if_not_converged()
        training: Any = self.data
        examples: Any = training if data is None else data
        if type(examples) is not type(training):
            raise DataError(
                f"data is a {type(examples).__name__}; this posterior classifies "
                f"{type(training).__name__}"
            )
        asked: Examples = examples.asked_of(training)
        return asked

    def _decide(self, asked: Examples) -> Floats:
        """Mean and variance of the decisions' latent functions, and the probability of going on.

        The shape is (3, s, m, k).
        """
        if self.origin is None:
            raise UnsupportedProgramError(
                "this posterior does not know its program, so it cannot classify; fit with a "
                "program and kernels of relpref before saving"
            )
        belief, functions, number = self.belief, max(len(self.classes) - 1, 1), len(asked)
        sites = sorted(self.slices.items(), key=lambda site: site[1].start)
        layout = tuple((name, rows.stop - rows.start) for name, rows in sites)
        # Of as many examples as there is memory for; a power of two, so that few sizes are
        # compiled.
        most = max(_NUMBERS // max(belief.size * functions, 1), 16)
        size = 2 ** min(max(number - 1, 15).bit_length(), most.bit_length() - 1)
        parts = [np.empty((3, len(belief.weights), 0, functions))]
        for start in range(0, number, size):
            rows = np.minimum(np.arange(start, start + size), number - 1)
            origin = self.origin.with_argument(self.data, asked[rows])
            with float64():
                call, arrays = Call.split(origin.program, origin.args, origin.kwargs)
                latents = _latents(call, layout, arrays, dict(self.hyperparameters))
                some = []
                for at, mean in enumerate(belief.locations):
                    covariance = None if belief.scales is None else belief.scales[at]
                    given = arrays, self.hyperparameters_at(at), mean, covariance
                    some.append(_decisions(call, latents, *given))
                parts.append(np.stack(some, axis=1)[:, :, : number - start])
        return np.concatenate(parts, axis=2)

    def groups(self, num_samples: int, rng_key: Any) -> Groups:
        groups, coords, dims = super().groups(num_samples, rng_key)
        # An example is one observation, however many decisions led to its class.
        coords["example"] = plain_coordinates(tuple(self.data.index))
        coords["class"] = plain_coordinates(self.classes[:-1])
        dims |= {
            DECISION: ["example", "class"],
            "intercept": ["class"],
            "weight": ["class", "feature"],
        }
        if "log_likelihood" in groups:
            decisions = groups["log_likelihood"].pop(DECISION)
            groups["log_likelihood"]["label"] = decisions.sum(axis=-1)
            dims["label"] = ["example"]
        return Groups(groups, coords, dims)

    def _summarized(self, top: int, interval: float) -> list[str]:
        return [f"{self.data.describe()}."]

    def __repr__(self) -> str:
        return f"ClassPosterior({self.data.describe()}; {self.engine}{self._evidence_in_words()})"


def chances_of_classes(going: Floats) -> Floats:
    """Probabilities of k + 1 classes, shape (..., k + 1), from those to go on at k decisions.

    P(class c) = Π_{j<c} P(go on at j) · P(stop at c); the last class is where nothing stopped.
    """
    reached = np.cumprod(going, axis=-1)
    first = np.ones_like(reached[..., :1])
    before, after = ([first, reached], [reached, 0 * first])
    return np.concatenate(before, axis=-1) - np.concatenate(after, axis=-1)


def _decisions(
    call: Call,
    latents: Layout,
    arrays: tuple[Any, ...],
    values: Values,
    mean: Floats,
    covariance: Floats | None,
) -> tuple[Floats, Floats, Floats]:
    """Mean and variance of the latent functions, and probability of a 1, shape (m, k) each.

    ``mean`` and ``covariance`` are those of the weights.
    """
    values = {**values, DECISION: np.zeros(())}  # which need not be drawn

    def predictor_at(vector: Array) -> Array:
        sites = call.trace(arrays, {**values, **latents.unravel(vector)})
        predictor: Array = jnp.ravel(as_likelihood(sites[DECISION]["fn"]).predictor)
        return predictor

    matrix: Any = None
    try:
        rows, sites = written(call, arrays, values, latents)
        matrix, moved = rows.matrix, rows.matrix @ mean
    except TypeError:
        sites = call.trace(arrays, {**values, **latents.unravel(mean)})
        moved = np.zeros(np.shape(as_likelihood(sites[DECISION]["fn"]).predictor))
        if covariance is not None:
            matrix = jax.jacobian(predictor_at)(mean)
    likelihood = as_likelihood(sites[DECISION]["fn"])
    assert isinstance(likelihood, ProbitBernoulli)  # a decision is yes or no
    center = np.asarray(likelihood.predictor)
    predictor = center + moved.reshape(center.shape)
    variance = np.zeros_like(predictor)
    if covariance is not None:
        variance = np.sum((matrix @ covariance) * matrix, axis=1).reshape(predictor.shape)
        variance = np.maximum(variance, 0.0)
    given: Any = np.ones(predictor.shape, np.int32), predictor, variance
    moments = likelihood.tilted(*given)
    if likelihood.spread is not None:  # what the process varies in addition to its features
        variance = variance + np.asarray(likelihood.spread)
    return predictor, variance, np.exp(np.asarray(moments.log_normalizer))


def _latents(
    call: Call, layout: tuple[tuple[str, int], ...], arrays: tuple[Any, ...], values: Values
) -> Layout:
    """The Gaussian sites of the program at these examples, in the order of the joint vector."""
    sites = jax.eval_shape(
        lambda: {name: site["value"] for name, site in call.trace(arrays, values).items()}
    )
    shapes = tuple((name, tuple(sites[name].shape)) for name, _ in layout)
    for (name, size), (_, shape) in zip(layout, shapes, strict=True):
        if int(np.prod(shape)) != size:
            raise DataError(
                f"the program has {int(np.prod(shape))} values of {name!r} at these examples and "
                f"had {size}; give features of as many columns as those it was fitted to"
            )
    return Layout(shapes, (), (DECISION,))
