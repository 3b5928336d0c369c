"""A program as a relation: its kernels, which pairs its labels are about, and their noise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from numpy.typing import NDArray

from relpref.data import RelationData
from relpref.data.relation_data import SIGN, RelationValues, Symmetry
from relpref.errors import UnsupportedProgramError
from relpref.infer.exact.closed import Loss
from relpref.infer.program import Call, Model, Values, log_prior, median, shapes_of, survey
from relpref.likelihoods import CentredNormal
from relpref.likelihoods.tilted import unwrap
from relpref.linalg import Kronecker

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]


class Reading(NamedTuple):
    """A relation at given hyperparameters.

    Attributes
    ----------
    left, right : array
        K and G; None for G where it is K.
    noise : float
        λ.
    log_prior : float
        Log density of the hyperparameters in the unconstrained space.
    values : dict
        Hyperparameters on their supports, with the fixed ones.
    """

    left: Any
    right: Any
    noise: Any
    log_prior: Any
    values: Values


@dataclass(frozen=True, eq=False)
class Structure:
    """A relation as a program states it.

    Attributes
    ----------
    call, arrays, fixed
        The program, its arguments and known hyperparameters.
    field, label : str
        The latent site and the observed one.
    hyperparameters : tuple of str
    medians : dict
        Of their priors, unconstrained.
    values : RelationValues
        Labels; of a constrained relation in both directions.
    loss, symmetry
    one_domain : bool
        Whether the two kernels are one.
    divisor : float
        The first label's noise has variance λ/``divisor``.
    """

    call: Call
    arrays: tuple[Any, ...]
    fixed: Values
    field: str
    label: str
    hyperparameters: tuple[str, ...]
    medians: Values
    values: RelationValues
    loss: Loss
    symmetry: Symmetry
    one_domain: bool
    divisor: float

    def at(self, unconstrained: Values) -> Reading:
        """The kernels and the noise, as NumPy."""
        found = self._forward(unconstrained, self.arrays, self.fixed)
        left, right = (None if k is None else np.asarray(0.5 * (k + k.T)) for k in (found.left, found.right))
        return Reading(left, right, float(found.noise), float(found.log_prior), found.values)

    def pulled(self, unconstrained: Values, left: Floats, right: Floats, noise: float) -> Values:
        """Gradient of what has these derivatives by K, G and λ, plus the log prior, by the hyperparameters."""
        of_kernels = (left + right, None) if self.one_domain else (left, right)
        cotangent = jax.tree.map(jnp.asarray, (*of_kernels, noise, 1.0))
        gradient: Values = self._pullback(unconstrained, self.arrays, self.fixed, cotangent)
        return gradient

    @cached_property
    def _forward(self) -> Callable[..., Reading]:
        return jax.jit(self._read)

    @cached_property
    def _pullback(self) -> Callable[..., Values]:
        def pull(unconstrained: Values, arrays: tuple[Any, ...], fixed: Values, cotangent: Any) -> Values:
            back = jax.vjp(lambda u: tuple(self._read(u, arrays, fixed)[:4]), unconstrained)[1]
            return back(cotangent)[0]

        return jax.jit(pull)

    def _read(self, unconstrained: Values, arrays: tuple[Any, ...], fixed: Values) -> Reading:
        field = {self.field: jnp.zeros(self.values.shape[0] * self.values.shape[1])}
        sites = self.call.trace(arrays, {**fixed, **field}, unconstrained=unconstrained)
        values = fixed | {name: sites[name]["value"] for name in unconstrained}
        factors: Any = unwrap(sites[self.field]["fn"]).covariance
        scale = jnp.ravel(jnp.asarray(unwrap(sites[self.label]["fn"]).scale))
        noise = self.divisor * jnp.square(scale[0])
        right = None if self.one_domain else factors.right.dense()
        return Reading(factors.left.dense(), right, noise, log_prior(sites, unconstrained), values)


def find_structure(call: Call, arrays: tuple[Any, ...], fixed: Values) -> Structure:
    """Read a program.

    Raises
    ------
    UnsupportedProgramError
        Naming the site that does not fit, and the engine that can treat it.
    """
    sites = {site.name: site for site in survey(call, shapes_of(arrays))}
    free = [name for name, site in sites.items() if not site.observed]
    observed = [name for name, site in sites.items() if site.observed]
    fields = [name for name in free if sites[name].process]
    if len(observed) != 1 or len(fields) != 1:
        raise UnsupportedProgramError(
            f"the exact engine needs one observed site and one GaussianProcess; the program has {len(observed)} "
            f"({', '.join(observed) or 'none'}) and {len(fields)}; EP or numpyro's MCMC(NUTS(program)) may run it"
        )
    field, label = fields[0], observed[0]
    zeros = np.zeros(sites[field].shape)
    traced = call.trace(arrays, {**fixed, field: jnp.asarray(zeros)})
    covariance: Any = unwrap(traced[field]["fn"])
    factors = covariance.covariance
    if not isinstance(factors, Kronecker):
        raise _refuse(field, f"has a {type(factors).__name__} covariance, not relpref.linalg.Kronecker")
    names = tuple(name for name in free if name != field and name not in fixed)
    for name in names:
        if sites[name].support.is_discrete:
            raise _refuse(name, "is discrete")
    values = {**fixed, **{name: traced[name]["value"] for name in names}}

    def predictor(probe: Floats) -> tuple[Floats, Any]:
        site = call.trace(arrays, {**values, field: jnp.asarray(probe)})[label]
        return np.asarray(unwrap(site["fn"]).loc, dtype=np.float64).reshape(-1), site

    offset, site = predictor(zeros)
    base = unwrap(site["fn"])
    if not isinstance(base, dist.Normal | CentredNormal):
        raise _refuse(label, f"has the likelihood {type(base).__name__}, not Normal or CentredNormal")
    if site["scale"] is not None:
        raise _refuse(label, "is scaled, so that its labels weigh differently")
    groups = np.asarray(base.groups) if isinstance(base, CentredNormal) else None
    shape = (factors.left.size, factors.right.size)
    symmetry, rows, columns = _pairs(lambda probe: predictor(probe)[0] - offset, shape, groups, label)
    if groups is not None and not np.array_equal(groups, rows):
        raise _refuse(label, "has offsets for something else than the field's rows, the conditioning nodes")
    # A pair read in both directions is one label with half the variance.
    once = symmetry != "none" and groups is None
    divisors = np.where(once & (rows != columns), 2.0, 1.0)
    noise = np.broadcast_to(np.square(np.asarray(base.scale, dtype=np.float64)), rows.shape)
    if not np.allclose(noise * divisors, noise[0] * divisors[0], rtol=1e-9):
        raise _refuse(label, "has noise of different sizes")
    labels = np.asarray(site["value"], dtype=np.float64).reshape(-1) - offset
    if once:
        apart = rows != columns
        labels = np.concatenate([labels, SIGN[symmetry] * labels[apart]])
        rows, columns = np.concatenate([rows, columns[apart]]), np.concatenate([columns, rows[apart]])
        if symmetry == "reciprocal":  # the program need not say that a node equals itself
            missing = np.setdiff1d(np.arange(shape[0]), rows[rows == columns])
            rows, columns = np.concatenate([rows, missing]), np.concatenate([columns, missing])
            labels = np.concatenate([labels, np.zeros(len(missing))])
    return Structure(
        call,
        arrays,
        fixed,
        field,
        label,
        names,
        {name: median(traced[name]) for name in names},
        RelationValues.of_edges(shape, rows, columns, labels),
        "regression" if groups is None else "ranking",
        symmetry,
        factors.left is factors.right,
        float(divisors[0]),
    )


def _pairs(
    linear: Callable[[Floats], Floats], shape: tuple[int, int], groups: Any, label: str
) -> tuple[Symmetry, Positions, Positions]:
    """Decode which pairs the predictors look at, and check it on a random field."""
    p, m = shape
    row = np.repeat(np.arange(p, dtype=np.float64), m)
    column = np.tile(np.arange(m, dtype=np.float64), p)
    test = np.random.default_rng(0).standard_normal(p * m)
    seen = linear(test)

    def found(sign: float, i: Floats, j: Floats) -> tuple[Positions, Positions] | None:
        if not (np.all(np.isfinite(i)) and np.all(np.isfinite(j))):
            return None
        rows, columns = np.rint(i).astype(np.intp), np.rint(j).astype(np.intp)
        inside = (rows >= 0) & (rows < p) & (columns >= 0) & (columns < m)
        if not inside.all():
            return None
        expected = test[rows * m + columns]
        if sign:
            expected = 0.5 * (expected + sign * test[columns * m + rows])
        return (rows, columns) if np.allclose(seen, expected, rtol=0, atol=1e-9) else None

    first, second = linear(row), linear(column)
    if (plain := found(0.0, first, second)) is not None:
        return "none", *plain
    if p == m:
        own = None if groups is None else np.asarray(groups, dtype=np.float64)
        squares, twice = 2 * linear(row**2), 2 * first
        # Symmetric: i + j and i² + j² are seen; reciprocal: i − j and i² − j².
        spread = np.sqrt(np.maximum(2 * squares - twice**2, 0.0))
        i = 0.5 * (twice - spread) if own is None else own
        if (symmetric := found(1.0, i, twice - i)) is not None:
            return "symmetric", *symmetric
        with np.errstate(divide="ignore", invalid="ignore"):
            i = 0.5 * (squares / twice + twice) if own is None else own
        if (reciprocal := found(-1.0, i, i - twice)) is not None:
            return "reciprocal", *reciprocal
    raise _refuse(label, "does not look at single pairs of the field, or at (f(v, w) ± f(w, v))/2")


def _refuse(site: str, why: str) -> UnsupportedProgramError:
    return UnsupportedProgramError(
        f"site {site!r} {why}, so the exact engine cannot treat it; EP or numpyro's MCMC(NUTS(program)) may"
    )


@dataclass(frozen=True, eq=False)
class ProgramKernel:
    """The node kernel of a program at given hyperparameters, as a `Domain` asks for it.

    Parameters
    ----------
    program : callable
    arguments : (args, kwargs)
        Of the program.
    data : RelationData or None
        Among them.
    values : dict
        Of all hyperparameters.
    field : str
        Site of the scores.
    side : {"nodes", "objects"}
    matrix : array, shape (p, p)
        Of the training nodes.
    """

    program: Model
    arguments: tuple[tuple[Any, ...], Mapping[str, Any]]
    data: RelationData | None
    values: Values
    field: str
    side: Literal["nodes", "objects"]
    matrix: Floats

    def __call__(self, left: Any, right: Any = None) -> Floats:
        """The training nodes' matrix; or rows for new attributes ``left``, against ``right`` or the training nodes (None).

        Raises
        ------
        UnsupportedProgramError
            If the kernel says nothing of new nodes.
        """
        if left is None:
            return self.matrix
        p, first = len(self.matrix), np.atleast_2d(np.asarray(left, dtype=np.float64))
        if right is None:
            return self._among(first)[p:, :p]
        second = np.atleast_2d(np.asarray(right, dtype=np.float64))
        return self._among(np.concatenate([first, second]))[p : p + len(first), p + len(first) :]

    def _among(self, attributes: Floats) -> Floats:
        """Kernel of the training nodes and new ones."""
        data = self.data
        domain = None if data is None else getattr(data, self.side)
        if data is None or domain is None:
            raise UnsupportedProgramError(
                "the program takes no RelationData, so nothing is known of new nodes; include them, with labels unknown"
            )
        if domain.relations:
            raise UnsupportedProgramError(
                f"the kernel of the {self.side} has a part on a graph, which new {self.side} would change; include them in "
                "the data with labels unknown (NaN) and fit again"
            )
        labels = pd.Index([("new", row) for row in range(len(attributes))], tupleize_cols=False)
        table = pd.DataFrame(attributes, columns=list(domain.attribute_names), index=labels)
        extended = data.extended(**{"nodes": None, "objects": None, self.side: table})
        args = tuple(extended if value is data else value for value in self.arguments[0])
        kwargs = {name: extended if value is data else value for name, value in self.arguments[1].items()}
        with jax.enable_x64(True):
            call, arrays = Call.split(self.program, args, kwargs)
            scores = jnp.zeros(extended.values.shape[0] * extended.values.shape[1])
            sites = call.trace(arrays, {**self.values, self.field: scores})
            factors: Any = unwrap(sites[self.field]["fn"]).covariance
            factor = factors.left if self.side == "nodes" else factors.right
            return np.asarray(factor.dense())
