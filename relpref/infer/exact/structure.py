"""A program as a relation: its kernels, which pairs its labels are about, and their noise."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from jax import Array
from numpy.typing import NDArray

from relpref.data import RelationData
from relpref.data.relation_data import SIGN, RelationValues, Symmetry
from relpref.errors import UnsupportedProgramError
from relpref.infer.exact.closed import Loss
from relpref.infer.program import Call, Layout, Model, Program, Values, log_prior, median, shapes_of, survey
from relpref.infer.sites import SparseRows
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
    program : Program
        With one latent site, the scores of all pairs, and one observed one, the labels.
    values : RelationValues
        Labels; of a constrained relation in both directions.
    loss, symmetry
    one_domain : bool
        Whether the two kernels are one.
    divisor : float
        The first label's noise has variance λ/``divisor``.
    """

    program: Program
    values: RelationValues
    loss: Loss
    symmetry: Symmetry
    one_domain: bool
    divisor: float

    def at(self, unconstrained: Values) -> Reading:
        """The kernels and the noise, as NumPy."""
        found = _read(self.program, self.one_domain, self.divisor, unconstrained)
        left, right = (None if k is None else np.asarray(0.5 * (k + k.T)) for k in (found.left, found.right))
        return Reading(left, right, float(found.noise), float(found.log_prior), found.values)

    def pulled(self, unconstrained: Values, left: Floats, right: Floats, noise: float) -> Values:
        """Gradient of what has these derivatives by K, G and λ, plus the log prior, by the hyperparameters."""
        of_kernels = (left + right, None) if self.one_domain else (left, right)
        cotangent = jax.tree.map(jnp.asarray, (*of_kernels, noise, 1.0))
        gradient: Values = _pull(self.program, self.one_domain, self.divisor, unconstrained, cotangent)
        return gradient


@partial(jax.jit, static_argnums=(1, 2))
def _read(program: Program, one_domain: bool, divisor: float, unconstrained: Values) -> Reading:
    ((field, _),), (label,) = program.layout.latents, program.layout.observed
    sites = program.sites(jnp.zeros(program.layout.num_latents), unconstrained)
    factors: Any = unwrap(sites[field]["fn"]).covariance
    noise = divisor * jnp.square(jnp.ravel(jnp.asarray(unwrap(sites[label]["fn"]).scale))[0])
    values = program.fixed | {name: sites[name]["value"] for name in unconstrained}
    right = None if one_domain else factors.right.dense()
    return Reading(factors.left.dense(), right, noise, log_prior(sites, unconstrained), values)


@partial(jax.jit, static_argnums=(1, 2))
def _pull(program: Program, one_domain: bool, divisor: float, unconstrained: Values, cotangent: Any) -> Any:
    def read(unconstrained: Values) -> Any:
        return tuple(_read(program, one_domain, divisor, unconstrained)[:4])

    return jax.vjp(read, unconstrained)[1](cotangent)[0]


@jax.jit
def _predictors(program: Program, scores: Array) -> Array:
    (label,) = program.layout.observed
    return jnp.ravel(unwrap(program.sites(scores)[label]["fn"]).loc)


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
    names = tuple(name for name in free if name != field and name not in fixed)
    layout = Layout(
        ((field, sites[field].shape),),
        tuple((name, sites[name].shape) for name in names),
        (label,),
        num_rows=int(np.prod(sites[label].shape)),
    )
    program = Program(call, layout, arrays, fixed)
    zeros = np.zeros(layout.num_latents)
    # As the program makes them: whether two kernels are one object does not survive compilation.
    traced = call.trace(arrays, {**fixed, field: jnp.asarray(zeros)})
    process: Any = unwrap(traced[field]["fn"])
    factors = process.covariance
    if not isinstance(factors, Kronecker):
        raise _refuse(field, f"has a {type(factors).__name__} covariance, not relpref.linalg.Kronecker")
    for name in names:
        if sites[name].support.is_discrete:
            raise _refuse(name, "is discrete")
    site = traced[label]
    base = unwrap(site["fn"])
    if not isinstance(base, dist.Normal | CentredNormal):
        raise _refuse(label, f"has the likelihood {type(base).__name__}, not Normal or CentredNormal")
    if site["scale"] is not None:
        raise _refuse(label, "is scaled, so that its labels weigh differently")
    groups = np.asarray(base.groups) if isinstance(base, CentredNormal) else None
    shape = (factors.left.size, factors.right.size)
    known = program.at({name: traced[name]["value"] for name in names})
    offset = np.asarray(_predictors(known, zeros))
    found = SparseRows.find(
        lambda scores: np.asarray(_predictors(known, scores)) - offset, (len(offset), len(zeros))
    )
    pairs = (
        None if found is None else _pairs(np.asarray(found.column), np.asarray(found.entry), shape, groups)
    )
    if pairs is None:
        raise _refuse(label, "does not look at single pairs of the field, or at (f(v, w) ± f(w, v))/2")
    symmetry, rows, columns = pairs
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
    medians = {name: median(traced[name]) for name in names}
    return Structure(
        Program(call, layout, arrays, fixed, medians),
        RelationValues.of_edges(shape, rows, columns, labels),
        "regression" if groups is None else "ranking",
        symmetry,
        factors.left is factors.right,
        float(divisors[0]),
    )


def _pairs(
    columns: Positions, entries: Floats, shape: tuple[int, int], groups: Any
) -> tuple[Symmetry, Positions, Positions] | None:
    """Which pair each row of the projection looks at, and by which constraint; None where it is no pair."""
    (i, j), (i2, j2) = (np.divmod(columns[:, end], shape[1]) for end in (0, 1))
    first, second = entries.T

    def are(values: Floats, expected: Any) -> bool:
        return bool(np.all(np.abs(values - expected) <= 1e-9))

    if are(first, 1.0) and are(second, 0.0):
        return "none", i, j
    if shape[0] != shape[1]:
        return None
    loops = ~(np.abs(second) > 0)
    if groups is not None:  # of a reciprocal relation a pair of a node and itself is nothing
        own = loops & ~(np.abs(first) > 0)
        i, j = np.where(own, groups, i), np.where(own, groups, j)
    if not np.all(np.where(loops, i == j, (i == j2) & (j == i2))):
        return None
    swap = i != groups if groups is not None else np.zeros(len(i), dtype=bool)
    if are(first, np.where(loops, 1.0, 0.5)) and are(second, np.where(loops, 0.0, 0.5)):
        return "symmetric", np.where(swap, j, i), np.where(swap, i, j)
    if (
        are(np.abs(first), np.where(loops, 0.0, 0.5))
        and are(second, -first)
        and (groups is not None or not loops.any())
    ):
        swap = first < 0
        return "reciprocal", np.where(swap, j, i), np.where(swap, i, j)
    return None


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
