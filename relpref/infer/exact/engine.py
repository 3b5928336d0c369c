"""The exact engine: Gaussian labels of a relation under a Kronecker kernel, without approximation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from jax import Array
from numpy.typing import NDArray

from relpref.data import RelationData
from relpref.data.relation_data import SIGN, RelationValues, Symmetry
from relpref.errors import DataError, InferenceError, UnsupportedProgramError
from relpref.infer.assemble import plain
from relpref.infer.computing import computing
from relpref.infer.exact.closed import EdgeEvidence, EvidenceGradient, KroneckerSystem, Loss, edge_floor
from relpref.infer.exact.domain import Domain
from relpref.infer.exact.solve import SOLVERS, Callback, EdgeScores, RelationProblem, Solver, require_mesh
from relpref.infer.program import (
    Call,
    Model,
    Values,
    broadcast_fixed,
    log_prior,
    median,
    shapes_of,
    survey,
)
from relpref.infer.relation_posterior import RelationPosterior
from relpref.infer.result import Progress, Result, code
from relpref.infer.search import Search, maximise
from relpref.infer.sites import Info, Sites
from relpref.kernels import GaussianProcess
from relpref.likelihoods import CentredNormal
from relpref.likelihoods.tilted import unwrap
from relpref.linalg import Eigen, Kronecker, symmetric_eigen
from relpref.posterior.gaussian import as_key, key_words

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
        table = pd.DataFrame(
            attributes,
            columns=list(domain.attribute_names),
            index=[("new", row) for row in range(len(attributes))],
        )
        table.index = pd.Index(list(table.index), tupleize_cols=False)
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


_STEEP = 1e-3  # largest gradient at a maximum, relative to the objective

_NOT_INTEGRATED = "hyperparameters are at their maximum, where all scores have one closed form; EP on the same program averages over them"


class ExactEvidence(NamedTuple):
    """The evidence of a relation and its exact gradient, in the unconstrained hyperparameters."""

    log_evidence: Any
    log_prior: Any
    gradient: Values
    sites: Sites
    info: Info


class Exact:
    """Exact posterior of a program whose labels are Gaussian around scores with a Kronecker covariance.

    It recognises, from the program alone, which pair each label is about, whether the relation is complete, symmetric or reciprocal, and
    whether labels have unknown offsets for each conditioning node (the ranking loss). A complete relation is solved in closed form
    (symmetric and reciprocal ones for regression); anything else by conjugate gradients, with variances from a factor of
    the edges' kernel.

    Parameters
    ----------
    program : callable
        Such as `relpref.models.conditional_ranking`.
    hyperparameters : {"maximise"}
        They maximise log evidence plus log prior, by the exact gradient.
    fixed : mapping from site to value, optional
        Hyperparameters that are known; scalars are broadcast.
    solver : {"auto", "closed", "cg"}
    tol, max_iterations
        Of the conjugate gradients: relative residual, and iterations.
    callback : callable, optional
        ``callback(iteration, dual, residual)`` after each of them; True ends them, and answers warn then.
    start : RelationPosterior, optional
        Of the same edges by conjugate gradients, such as at other hyperparameters: where the iterations start.
    mesh : jax.sharding.Mesh, optional
        Of one axis: devices that share the products of the conjugate gradients, which then take the closed form's place. The
        search for hyperparameters and the variances stay with the host.
    max_evaluations : int
        Of the evidence.
    throw : bool
        Raise where the result is not ``converged``; otherwise ``info["result"]`` says so.
    """

    name: ClassVar[str] = "exact"

    def __init__(
        self,
        program: Model,
        *,
        hyperparameters: Literal["maximise"] = "maximise",
        fixed: Mapping[str, Any] | None = None,
        solver: Solver = "auto",
        tol: float = 1e-10,
        max_iterations: int | None = None,
        callback: Callback | None = None,
        start: RelationPosterior | None = None,
        mesh: Any = None,
        max_evaluations: int = 100,
        throw: bool = True,
    ) -> None:
        if not callable(program):
            raise DataError(
                f"program is {program!r}; Exact takes a numpyro program, such as relpref.models.conditional_ranking"
            )
        if hyperparameters != "maximise":
            raise DataError(
                f"hyperparameters is {hyperparameters!r}; Exact maximises the evidence: 'maximise'"
            )
        if solver not in SOLVERS:
            raise DataError(f"solver is {solver!r}; it is 'auto', 'closed' or 'cg'")
        if max_evaluations < 1:
            raise DataError(f"max_evaluations is {max_evaluations}; it must be at least 1")
        if not 0 < tol < 1:
            raise DataError(f"tol is {tol}; it must lie between 0 and 1")
        self.program = program
        self.fixed = dict(fixed or {})
        self.solver: Solver = solver
        self.tol = tol
        self.max_iterations = max_iterations
        self.callback = callback
        self.start = start
        self.mesh = mesh
        self.max_evaluations = max_evaluations
        self.throw = throw

    def run(self, rng_key: Any, *args: Any, progress_bar: bool = True, **kwargs: Any) -> RelationPosterior:
        """Fit.

        Parameters
        ----------
        rng_key : JAX key or int
            Kept for Monte Carlo answers.
        *args, **kwargs
            Passed to the program.
        progress_bar : bool
            Show the search or the iterations, where a person watches.

        Raises
        ------
        UnsupportedProgramError
            If the program is no relation under a Kronecker kernel; nothing has been computed then.
        InferenceError
            If the search or the iterations did not converge, and ``throw``.
        DataError
            If ``fixed`` does not fit, a kernel is none, or memory would not suffice.
        """
        with computing("Exact", rng_key, args, kwargs, self.fixed):
            return self._run(as_key(rng_key), args, kwargs, progress_bar)

    def _run(
        self, key: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], progress_bar: bool
    ) -> RelationPosterior:
        call, arrays = Call.split(self.program, args, kwargs)
        fixed = broadcast_fixed(call, arrays, self.fixed)
        structure = find_structure(call, arrays, fixed)
        if self.mesh is not None:
            require_mesh(self.mesh, structure.values.shape[0], self.callback)
        reader = _Reader(call, arrays, structure, fixed)
        search: Search | None = None
        unconstrained: Values = {}
        if structure.hyperparameters:
            evidence = _evidence_of(structure)
            with Progress("exact: maximising the evidence", progress_bar) as progress:
                search = maximise(
                    lambda u, _: reader.evidence(u, evidence),
                    structure.medians,
                    Sites(jnp.zeros(0), jnp.zeros(0)),
                    self.max_evaluations,
                    progress.step,
                )
            unconstrained = search.unconstrained
        return self._solve(reader, unconstrained, search, key, (args, kwargs), progress_bar)

    def _solve(
        self,
        reader: "_Reader",
        unconstrained: Values,
        search: Search | None,
        key: Any,
        arguments: tuple[Any, Any],
        progress_bar: bool,
    ) -> RelationPosterior:
        structure = reader.structure
        left, right, noise, log_prior, hyperparameters = reader.at(unconstrained)
        data = _relation_data(*arguments)
        values = {**reader.fixed, **hyperparameters}
        labels = _labels(data, structure)
        names = (None, None) if data is None else _attribute_names(data)
        kernel = ProgramKernel(self.program, arguments, data, values, structure.field, "nodes", left)
        nodes = Domain(labels[0], None, kernel, "node", names[0])
        objects = nodes
        if right is not None:
            kernel = ProgramKernel(self.program, arguments, data, values, structure.field, "objects", right)
            objects = Domain(labels[1], None, kernel, "object", names[1])
        problem = RelationProblem(
            nodes,
            objects,
            structure.values,
            structure.loss,
            structure.symmetry,
            solver=self.solver,
            mesh=self.mesh,
        )
        info: dict[str, Any] = {"engine": self.name, "result": "converged", **problem.describe()}
        log_evidence: float | None = None
        wanted = False  # the end that the callback asked for
        if problem.closed:
            if search is not None:  # what the search saw
                info["noise_floor"] = noise_floor(nodes.eigen, objects.eigen)
                noise += info["noise_floor"]
            closed = problem.closed_scores(noise, scale=1.0)
            log_evidence = closed.fit.log_evidence()
            scores: Any = closed
            info |= {"solver": "closed form", "iterations": 0}
        else:
            if search is not None:
                info["noise_floor"] = edge_floor(nodes.gram, objects.gram)
                noise += float(info["noise_floor"])
            with Progress("conjugate gradients", progress_bar, "iterations", "residual {:.1e}") as progress:
                scores, found = problem.iterate(
                    noise,
                    start=self._start_of(problem),
                    tol=self.tol,
                    max_iterations=self.max_iterations,
                    callback=self.callback,
                    progress=progress.step,
                    scale=1.0,
                )
            wanted = found.reason == "stopped"
            converged = found.reason == "converged"
            info |= {
                "solver": "conjugate gradients",
                "iterations": found.iterations,
                "residual": found.residual,
            }
            if search is not None and not (
                converged or wanted
            ):  # the search has factorised this kernel many times
                scores, converged = scores.direct(), True
                info["solver"] = "factor of the edges' kernel"
            info["result"] = "converged" if converged else "iterations_not_converged"
            log_evidence = self._edge_evidence(structure, nodes, objects, noise)
        if search is not None:
            info |= {"evaluations": search.evaluations, "gradient_norm": search.gradient_norm}
            info["integration"] = _NOT_INTEGRATED
            # A line search may end where the evidence falls off too steeply to go on, which is no maximum, or at one that rounding hides:
            # without noise in the labels the kernel matrix loses twelve digits.
            steep = search.gradient_norm > _STEEP * max(100.0, abs(search.objective))
            given_up = not search.converged and search.evaluations >= self.max_evaluations
            if steep or given_up:
                info["result"] = "hyperparameters_not_converged"
        info["log_prior"] = float(log_prior)
        result = Result[info["result"]]
        if not result.ok and self.throw and not wanted:
            raise InferenceError(f"{result.name}: {result.value}", result)
        return RelationPosterior(
            problem=problem,
            solution=scores,
            noise=noise,
            shift=0.0 if data is None else data.shift,
            hyperparameters={name: plain(value) for name, value in values.items()},
            log_evidence=log_evidence,
            info=info,
            key=key_words(key),
        )

    def _start_of(self, problem: RelationProblem) -> Any:
        """The dual of the posterior to start from."""
        if self.start is None:
            return None
        solution, edges = self.start.solution, len(problem.values.values)
        if not isinstance(solution, EdgeScores) or len(solution.dual) != edges:
            raise DataError(
                f"start is a posterior that is not from conjugate gradients on {edges} edges; leave it out"
            )
        return solution.dual

    @staticmethod
    def _edge_evidence(structure: Structure, nodes: Domain, objects: Domain, noise: float) -> float | None:
        """Of an incomplete relation; None where there is none, or no memory for it."""
        try:
            evidence = EdgeEvidence(structure.values, structure.loss, structure.symmetry)
        except (DataError, UnsupportedProgramError):
            return None
        return evidence(jnp.asarray(nodes.gram), jnp.asarray(objects.gram), noise)[0]


class _Reader:
    """The program's kernels and noise at any hyperparameters, and the way back for gradients."""

    def __init__(self, call: Call, arrays: tuple[Any, ...], structure: Structure, fixed: Values) -> None:
        self.call, self.arrays, self.structure, self.fixed = call, arrays, structure, fixed
        self._forward = jax.jit(self._read)
        self._pullback = jax.jit(self._pull)

    def at(self, unconstrained: Values) -> tuple[Any, Any, float, float, Values]:
        """K, G or None, λ, log prior and hyperparameters, as NumPy."""
        (left, right, noise, log_prior), values = self._forward(unconstrained, self.arrays, self.fixed)
        kernels = [None if k is None else _symmetric(np.asarray(k)) for k in (left, right)]
        return kernels[0], kernels[1], float(noise), float(log_prior), values

    def evidence(
        self, unconstrained: Values, evidence: Callable[..., tuple[float, EvidenceGradient]]
    ) -> ExactEvidence:
        """Log evidence and prior, and their gradient: MATH's ∂log Z/∂K held constant against the program's K."""
        left, right, noise, log_prior, _ = self.at(unconstrained)
        value, gradient = np.nan, EvidenceGradient(0 * left, 0 * (left if right is None else right), 0.0)
        if (
            np.isfinite(noise)
            and noise > 0
            and all(np.isfinite(k).all() for k in (left, right) if k is not None)
        ):
            value, gradient = evidence(left, left if right is None else right, noise)
        cotangent: tuple[Any, Any, Any, Any]
        if right is None:
            cotangent = (gradient.left + gradient.right, None, gradient.noise, 1.0)
        else:
            cotangent = (gradient.left, gradient.right, gradient.noise, 1.0)
        pulled = self._pullback(unconstrained, self.arrays, self.fixed, jax.tree.map(jnp.asarray, cotangent))
        info = Info(*(jnp.asarray(0.0) for _ in Info._fields))._replace(
            code=jnp.asarray(code(Result.converged)), residual=jnp.asarray(0.0)
        )
        return ExactEvidence(value, log_prior, pulled, Sites(jnp.zeros(0), jnp.zeros(0)), info)

    def _read(self, unconstrained: Values, arrays: tuple[Any, ...], fixed: Values) -> tuple[Any, Values]:
        shape = self.structure.values.shape
        field = {self.structure.field: jnp.zeros(shape[0] * shape[1])}
        sites = self.call.trace(arrays, {**fixed, **field}, unconstrained=unconstrained)
        hyperparameters = {name: sites[name]["value"] for name in unconstrained}
        left, right, noise = read_factors(self.call, arrays, self.structure, {**fixed, **hyperparameters})
        return (left, right, noise, log_prior(sites, unconstrained)), hyperparameters

    def _pull(self, unconstrained: Values, arrays: tuple[Any, ...], fixed: Values, cotangent: Any) -> Values:
        _, pull = jax.vjp(lambda u: self._read(u, arrays, fixed)[0], unconstrained)
        return pull(cotangent)[0]


def _evidence_of(structure: Structure) -> Callable[..., tuple[float, EvidenceGradient]]:
    """The closed form where there is one."""
    values, loss, symmetry = structure.values, structure.loss, structure.symmetry
    if not values.complete or (symmetry != "none" and loss == "ranking"):
        return EdgeEvidence(values, loss, symmetry)

    def closed(left: Any, right: Any, noise: float) -> tuple[float, EvidenceGradient]:
        first: Eigen = symmetric_eigen(left)
        second = first if right is left else symmetric_eigen(right)
        fit = KroneckerSystem.of(first, second, values.matrix, loss, symmetry).solve(
            noise + noise_floor(first, second)
        )
        gradient = fit.evidence_gradient()
        # The floor moves with the largest eigenvalues, whose derivatives are v vᵀ and u uᵀ.
        pull = gradient.noise * noise_floor(first, second)
        outer = [
            np.multiply.outer(e.vectors[:, -1], e.vectors[:, -1]) / e.values[-1] for e in (first, second)
        ]
        return fit.log_evidence(), EvidenceGradient(
            gradient.left + pull * outer[0], gradient.right + pull * outer[1], gradient.noise
        )

    return closed


def noise_floor(left: Eigen, right: Eigen) -> float:
    """Noise that rounding adds to every label: without it the evidence of labels without noise has no maximum."""
    return 1e-14 * float(left.values[-1] * right.values[-1])


def _symmetric(matrix: Any) -> Any:
    return 0.5 * (matrix + matrix.T)


def _relation_data(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> RelationData | None:
    """The relation among a program's arguments."""
    found = [value for value in (*args, *kwargs.values()) if isinstance(value, RelationData)]
    return found[0] if found else None


def _labels(data: RelationData | None, structure: Structure) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    p, m = structure.values.shape
    if data is None:
        return tuple(range(p)), tuple(range(m))
    return data.nodes.entities, (data.nodes if data.objects is None else data.objects).entities


def _attribute_names(data: RelationData) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return data.nodes.attribute_names, (data.nodes if data.objects is None else data.objects).attribute_names
