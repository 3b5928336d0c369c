"""Finds the relation in a program: which pair each label is about, under which constraint and loss, with which noise.

The program is run with the field of all pairs replaced by probes, such as the number of each pair's row: what its labels' predictors then
are tells which pairs they look at. Whatever is not a relation under a Kronecker kernel is refused by name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpy.typing import NDArray

from relpref.data.relation_values import SIGN, RelationValues, Symmetry
from relpref.errors import DataError, UnsupportedProgramError
from relpref.infer.exact.closed import Loss
from relpref.infer.layout import median, shapes_of, survey
from relpref.infer.observed import unwrap
from relpref.infer.program import Call, Values
from relpref.kernels import GaussianProcess
from relpref.likelihoods import CentredNormal
from relpref.linalg import Kronecker

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Structure:
    """A relation as a program states it.

    Attributes
    ----------
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

    field: str
    label: str
    hyperparameters: tuple[str, ...]
    medians: Values
    values: RelationValues
    loss: Loss
    symmetry: Symmetry
    one_domain: bool
    divisor: float


def find_structure(call: Call, arrays: tuple[Any, ...], fixed: Values) -> Structure:
    """Read a program.

    Raises
    ------
    UnsupportedProgramError
        Naming the site that does not fit, and the engine that can treat it.
    DataError
        If ``fixed`` names a site that the program does not have.
    """
    sites = {site.name: site for site in survey(call, shapes_of(arrays))}
    free = [name for name, site in sites.items() if not site.observed]
    for name in fixed:
        if name not in free:
            raise DataError(
                f"fixed names the site {name!r}; the program's unobserved sites are {', '.join(free)}"
            )
    observed = [name for name, site in sites.items() if site.observed]
    fields = [name for name in free if sites[name].process]
    if len(observed) != 1 or len(fields) != 1:
        raise UnsupportedProgramError(
            f"the exact engine needs one observed site and one GaussianProcess; the program has {len(observed)} "
            f"({', '.join(observed) or 'none'}) and {len(fields)}; EP or numpyro's MCMC(NUTS(program)) may run it"
        )
    field, label = fields[0], observed[0]
    zeros = jnp.zeros(sites[field].shape)
    traced = call.trace(arrays, {**fixed, field: zeros})
    covariance = unwrap(traced[field]["fn"])
    assert isinstance(covariance, GaussianProcess)
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

    offset, site = predictor(np.zeros(sites[field].shape))
    base = unwrap(site["fn"])
    if not isinstance(base, dist.Normal | CentredNormal):
        raise _refuse(label, f"has the likelihood {type(base).__name__}, not Normal or CentredNormal")
    if site["scale"] is not None:
        raise _refuse(label, "is scaled, so that its labels weigh differently")
    centred = isinstance(base, CentredNormal)
    groups = np.asarray(base.groups) if centred else None
    shape = (factors.left.size, factors.right.size)
    symmetry, rows, columns = _pairs(lambda probe: predictor(probe)[0] - offset, shape, groups, label)
    if groups is not None and not np.array_equal(groups, rows):
        raise _refuse(label, "has offsets for something else than the field's rows, the conditioning nodes")
    noise = np.broadcast_to(np.square(np.asarray(base.scale, dtype=np.float64)), rows.shape)
    divisors = np.ones(len(rows))
    if (
        symmetry != "none" and not centred
    ):  # a pair read in both directions is one label with half the variance
        divisors = np.where(rows == columns, 1.0, 2.0)
    if not np.allclose(noise * divisors, noise[0] * divisors[0], rtol=1e-9):
        raise _refuse(label, "has noise of different sizes")
    labels = np.asarray(site["value"], dtype=np.float64).reshape(-1) - offset
    if symmetry != "none" and not centred:
        apart = rows != columns
        labels = np.concatenate([labels, SIGN[symmetry] * labels[apart]])
        rows, columns = np.concatenate([rows, columns[apart]]), np.concatenate([columns, rows[apart]])
        if symmetry == "reciprocal":  # the program need not say that a node equals itself
            missing = np.setdiff1d(np.arange(shape[0]), rows[rows == columns])
            rows, columns = np.concatenate([rows, missing]), np.concatenate([columns, missing])
            labels = np.concatenate([labels, np.zeros(len(missing))])
    medians = {name: median(traced[name]) for name in names}
    loss: Loss = "ranking" if centred else "regression"
    return Structure(
        field,
        label,
        names,
        medians,
        RelationValues.of_edges(shape, rows, columns, labels),
        loss,
        symmetry,
        factors.left is factors.right,
        float(divisors[0]),
    )


def read_factors(
    call: Call, arrays: tuple[Any, ...], structure: Structure, values: Values
) -> tuple[Array, Array | None, Array]:
    """K, G (None where it is K) and λ at given hyperparameters, as JAX sees them."""
    zeros = jnp.zeros(structure.values.shape[0] * structure.values.shape[1])
    sites = call.trace(arrays, {**values, structure.field: zeros})
    factors: Any = unwrap(sites[structure.field]["fn"]).covariance
    scale = jnp.ravel(jnp.asarray(unwrap(sites[structure.label]["fn"]).scale))
    noise = structure.divisor * jnp.square(scale[0])
    return factors.left.dense(), None if structure.one_domain else factors.right.dense(), noise


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
    plain = found(0.0, first, second)
    if plain is not None:
        return "none", *plain
    if p == m:
        squares = 2 * linear(row**2)
        # Symmetric: i + j and i² + j² are seen; reciprocal: i − j and i² − j².
        total = 2 * first
        spread = np.sqrt(np.maximum(2 * squares - total**2, 0.0))
        i, j = 0.5 * (total - spread), 0.5 * (total + spread)
        if groups is not None:
            i, j = np.asarray(groups, dtype=np.float64), total - groups
        symmetric = found(1.0, i, j)
        if symmetric is not None:
            return "symmetric", *symmetric
        gap = 2 * first
        with np.errstate(divide="ignore", invalid="ignore"):
            total = squares / gap
        i, j = 0.5 * (total + gap), 0.5 * (total - gap)
        if groups is not None:
            i, j = np.asarray(groups, dtype=np.float64), groups - gap
        reciprocal = found(-1.0, i, j)
        if reciprocal is not None:
            return "reciprocal", *reciprocal
    raise _refuse(label, "does not look at single pairs of the field, or at (f(v, w) ± f(w, v))/2")


def _refuse(site: str, why: str) -> UnsupportedProgramError:
    return UnsupportedProgramError(
        f"site {site!r} {why}, so the exact engine cannot treat it; EP or numpyro's MCMC(NUTS(program)) may"
    )
