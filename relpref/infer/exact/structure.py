"""A program as a relation: its kernels, which pairs its labels are about, and their noise."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from jax import Array
from numpyro.distributions import constraints
from numpyro.primitives import Messenger

from relpref.compiled import float64
from relpref.data import RelationData
from relpref.data.arrays import Floats, Indices
from relpref.data.relation_data import SIGN, RelationValues, Symmetry
from relpref.errors import UnsupportedProgramError
from relpref.infer.call import Call, Model, Shapes, Values, survey
from relpref.infer.exact.closed import EvidenceGradient, Loss
from relpref.infer.exact.domain import Domain
from relpref.infer.exact.solve import RelationProblem
from relpref.infer.program import Program, discover
from relpref.infer.template import Filled
from relpref.likelihoods import CentredNormal
from relpref.likelihoods.tilted import GaussianLikelihood, TreeDistribution, unwrap
from relpref.linalg import Kronecker
from relpref.linalg.covariance import Pulls, joined
from relpref.posterior.origin import Origin


class Reading(NamedTuple):
    """A relation at given hyperparameters: K, G (None where it is K), λ, log prior and values."""

    left: Any
    right: Any
    noise: Any
    log_prior: Any
    values: Values
    here: Filled  # the program there


class Labels(TreeDistribution):
    """Independent labels in place of those whose ``groups`` have unknown offsets."""

    support = constraints.real
    leaves: ClassVar[tuple[str, ...]] = ("predictor", "scale", "groups")
    log_concave = True
    tilted, gaussian_site = GaussianLikelihood.tilted, GaussianLikelihood.gaussian_site

    def __init__(self, predictor: Array, scale: Array, groups: Array) -> None:
        self.predictor, self.scale, self.groups = predictor, scale, groups
        super().__init__(jnp.shape(predictor), validate_args=False)


@dataclass(frozen=True)
class _Independent(Messenger):
    """A program in which labels of the ranking loss have independent noise, to be read."""

    fn: Model

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "sample" and isinstance(unwrap(msg["fn"]), CentredNormal):
            base = unwrap(msg["fn"])
            msg["fn"] = Labels(base.loc, base.scale, base.groups)


@dataclass(frozen=True, eq=False)
class Structure:
    """A relation as a program states it.

    The program has one latent site, the scores of all pairs, and one observed site, the labels.
    ``values`` of a constrained relation are in both directions. With ``one_domain`` the two kernels
    are one. The first label's noise has variance λ/``divisor``.
    """

    program: Program
    values: RelationValues
    loss: Loss
    symmetry: Symmetry
    one_domain: bool
    divisor: float

    def problem(self, nodes: Domain, objects: Domain) -> RelationProblem:
        """The relation with its kernels at some hyperparameters.

        Where the two kernels are one, ``nodes`` and ``objects`` are the same domain.
        """
        return RelationProblem(nodes, objects, self.values, self.loss, self.symmetry)

    def require_evidence(self) -> None:
        """Refuse a loss that is no likelihood."""
        if self.symmetry != "none" and self.loss == "ranking":
            raise UnsupportedProgramError(
                f"the ranking loss of a {self.symmetry} relation uses every label at both its "
                "ends, so it has no evidence to "
                "maximize; give all hyperparameters with fixed=, or choose them by cross-validation"
            )

    def at(self, unconstrained: Values) -> Reading:
        """The kernels and the noise, as NumPy."""
        here = self.program.on_host(unconstrained)
        prior = here.prior
        factors: Any = prior.covariance.blocks[0]
        likelihood: Any = prior.observations[0].likelihood
        scale = np.ravel(likelihood.scale)[0]
        left, right = (0.5 * (k + k.T) for k in (factors.left.dense(), factors.right.dense()))
        values = {**self.program.fixed, **prior.hyperparameters}
        noise = self.divisor * float(scale) ** 2
        log_prior = float(prior.log_prior)
        return Reading(left, None if self.one_domain else right, noise, log_prior, values, here)

    def pulled(self, reading: Reading, by: EvidenceGradient) -> Values:
        """Gradient by the hyperparameters from that by K, G and λ, and that of the log prior."""
        prior = reading.here.prior
        factors: Any = prior.covariance.blocks[0]
        likelihood: Any = prior.observations[0].likelihood
        slope = np.zeros(np.shape(likelihood.scale))
        slope.flat[0] = 2 * self.divisor * by.noise * np.ravel(likelihood.scale)[0]
        pulls: Pulls = {("observations", "0", "likelihood", "scale"): slope}
        for side, kernel in (("left", by.left), ("right", by.right)):
            pulls |= joined(getattr(factors, side).pull(kernel), "covariance", "blocks", "0", side)
        return reading.here.gradient(pulls)


_NO_PAIRS = "does not look at single pairs of the field, or at (f(v, w) ± f(w, v))/2"


class _Form(NamedTuple):
    """Facts about a program's covariance and likelihood that do not depend on array values."""

    covariance: type
    sizes: tuple[int, int]
    one_domain: bool
    likelihood: type
    scaled: bool


@lru_cache(maxsize=64)
def _form(call: Call, field: str, label: str) -> _Form:
    forms: list[_Form] = []

    def record(arrays: Shapes) -> None:
        # Read during tracing: compilation loses whether two kernels are one object.
        sites = call.trace(arrays, {})
        factors: Any = unwrap(sites[field]["fn"]).covariance
        product = isinstance(factors, Kronecker)
        sizes = (factors.left.size, factors.right.size) if product else (0, 0)
        base = type(unwrap(sites[label]["fn"]))
        one_domain = product and factors.left is factors.right
        forms.append(
            _Form(type(factors), sizes, one_domain, base, sites[label]["scale"] is not None)
        )

    jax.eval_shape(record, call.shapes)
    return forms[0]


def find_structure(call: Call, arrays: tuple[Any, ...], fixed: Values) -> Structure:
    """Read a program; an error names the site that does not fit and an engine that can treat it."""
    sites = survey(call)
    free = [name for name, site in sites.items() if not site.observed]
    observed = [name for name, site in sites.items() if site.observed]
    fields = [name for name in free if sites[name].process]
    if len(observed) != 1 or len(fields) != 1:
        raise UnsupportedProgramError(
            "the exact engine needs one observed site and one GaussianProcess; the program has "
            f"{len(observed)} ({', '.join(observed) or 'none'}) and {len(fields)}; EP or numpyro's "
            "MCMC(NUTS(program)) may run it"
        )
    field, label = fields[0], observed[0]
    names = tuple(name for name in free if name != field and name not in fixed)
    form = _form(call, field, label)
    if not issubclass(form.covariance, Kronecker):
        raise _refuse(
            field, f"has a {form.covariance.__name__} covariance, not relpref.linalg.Kronecker"
        )
    for name in names:
        if sites[name].support.is_discrete:
            raise _refuse(name, "is discrete")
    if not issubclass(form.likelihood, dist.Normal | CentredNormal):
        raise _refuse(
            label, f"has the likelihood {form.likelihood.__name__}, not Normal or CentredNormal"
        )
    if form.scaled:
        raise _refuse(label, "is scaled, so that its labels weigh differently")
    try:
        # Without fixed values, which numpyro would check: noise may be 0.
        program = discover(replace(call, program=_Independent(call.program)), arrays, {})
    except UnsupportedProgramError:
        raise _refuse(label, _NO_PAIRS) from None
    program = replace(
        program,
        layout=replace(program.layout, hyperparameters=tuple((n, sites[n].shape) for n in names)),
        fixed=fixed,
        medians={name: program.medians[name] for name in names},
    )
    looks = program.rows
    if looks is None or program.layout.quadrature:
        raise _refuse(label, _NO_PAIRS)
    prior = program.on_host(program.medians).prior
    if not prior.observations:
        raise _refuse(label, "or a prior has a distribution that JAX cannot build again")
    likelihood: Any
    ((likelihood, value, _),) = prior.observations
    offset, scale = prior.offset, likelihood.scale
    groups = getattr(likelihood, "groups", None)
    pairs = _pairs(looks.column, looks.entry, form.sizes, groups)
    if pairs is None:
        raise _refuse(label, _NO_PAIRS)
    symmetry, rows, columns = pairs
    if groups is not None and not np.array_equal(groups, rows):
        raise _refuse(
            label, "has offsets for something else than the field's rows, the conditioning nodes"
        )
    # A pair read in both directions is one label with half the variance.
    once = symmetry != "none" and groups is None
    divisors = np.where(once & (rows != columns), 2.0, 1.0)
    noise = np.broadcast_to(np.square(scale), rows.shape)
    if not np.allclose(noise * divisors, noise[0] * divisors[0], rtol=1e-9):
        raise _refuse(label, "has noise of different sizes")
    labels = np.asarray(value, dtype=np.float64).reshape(-1) - offset
    if once:
        apart = rows != columns
        labels = np.concatenate([labels, SIGN[symmetry] * labels[apart]])
        rows, columns = (
            np.concatenate([rows, columns[apart]]),
            np.concatenate([columns, rows[apart]]),
        )
        if symmetry == "reciprocal":  # the program need not say that a node equals itself
            missing = np.setdiff1d(np.arange(form.sizes[0]), rows[rows == columns])
            rows, columns = np.concatenate([rows, missing]), np.concatenate([columns, missing])
            labels = np.concatenate([labels, np.zeros(len(missing))])
    return Structure(
        program,
        RelationValues.of_edges(form.sizes, rows, columns, labels),
        "regression" if groups is None else "ranking",
        symmetry,
        form.one_domain,
        float(divisors[0]),
    )


def _pairs(
    columns: Indices, entries: Floats, shape: tuple[int, int], groups: Any
) -> tuple[Symmetry, Indices, Indices] | None:
    """Constraint, nodes and objects of the rows of a projection; None if a row is no pair."""
    (i, j), (i2, j2) = (np.divmod(columns[:, end], shape[1]) for end in (0, 1))
    first, second = entries.T

    def are(values: Floats, expected: Any) -> bool:
        return bool(np.all(np.abs(values - expected) <= 1e-9))

    if are(first, 1.0) and are(second, 0.0):
        return "none", i, j
    if shape[0] != shape[1]:
        return None
    loops = ~(np.abs(second) > 0)
    if groups is not None:  # rows of a node with itself are empty in a reciprocal relation
        empty = loops & ~(np.abs(first) > 0)
        i, j = np.where(empty, groups, i), np.where(empty, groups, j)
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
        f"site {site!r} {why}, so the exact engine cannot treat it; EP or numpyro's "
        "MCMC(NUTS(program)) may"
    )


@dataclass(frozen=True, eq=False)
class ProgramKernel:
    """The node kernel of a program at given hyperparameters, as a `Domain` asks for it.

    ``origin`` is the program and its arguments, where they are known, with ``data`` among them;
    ``values`` are all hyperparameters, ``field`` is the site of the scores, and ``matrix`` the
    kernel of the training nodes.
    """

    origin: Origin | None
    data: RelationData | None
    values: Values
    field: str
    side: Literal["nodes", "objects"]
    matrix: Floats

    def __call__(self, left: Any, right: Any = None) -> Floats:
        """The matrix of the training nodes, or rows for new attributes ``left``.

        Columns are new attributes ``right``, or the training nodes if it is None.
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
        if self.origin is None or data is None or domain is None:
            raise UnsupportedProgramError(
                "the program takes no RelationData, so nothing is known of new nodes; include "
                "them, with labels unknown"
            )
        if domain.relations:
            raise UnsupportedProgramError(
                f"the kernel of the {self.side} has a part on a graph, which new {self.side} would "
                "change; include them in the data with labels unknown (NaN) and fit again"
            )
        labels = pd.Index([("new", row) for row in range(len(attributes))], tupleize_cols=False)
        table = pd.DataFrame(attributes, columns=list(domain.attribute_names), index=labels)
        extended = data.extended(**{"nodes": None, "objects": None, self.side: table})
        origin = self.origin.with_argument(data, extended)
        with float64():
            call, arrays = Call.split(origin.program, origin.args, origin.kwargs)
            scores = jnp.zeros(extended.values.shape[0] * extended.values.shape[1])
            sites = call.trace(arrays, {**self.values, self.field: scores})
            factors: Any = unwrap(sites[self.field]["fn"]).covariance
            factor = factors.left if self.side == "nodes" else factors.right
            return np.asarray(factor.dense())
