"""The exact engine: Gaussian labels of a relation under a Kronecker kernel, without approximation."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relpref.data import RelationData
from relpref.errors import DataError, InferenceError, UnsupportedProgramError
from relpref.infer.belief import as_key, key_words
from relpref.infer.computing import computing
from relpref.infer.exact.closed import EvidenceGradient, KroneckerSystem
from relpref.infer.exact.domain import Domain
from relpref.infer.exact.edge_evidence import EdgeEvidence, edge_floor
from relpref.infer.exact.edge_scores import EdgeScores
from relpref.infer.exact.iterative import require_mesh
from relpref.infer.exact.newcomers import ProgramKernel
from relpref.infer.exact.solve import SOLVERS, Callback, RelationProblem, Solver
from relpref.infer.exact.structure import Structure, find_structure, read_factors
from relpref.infer.faces import plain
from relpref.infer.layout import broadcast_fixed
from relpref.infer.maximise import Search, maximise
from relpref.infer.program import Call, Program, Values, constrain, in_double
from relpref.infer.progress import Progress
from relpref.infer.relation_posterior import RelationPosterior
from relpref.infer.result import Result, code
from relpref.infer.sites import Info, Sites
from relpref.linalg import Eigen, symmetric_eigen

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
        program: Program,
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
        arrays = tuple(in_double(array) for array in arrays)
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
        first = self.call.trace(arrays, {**fixed, **field})
        hyperparameters, _ = constrain(first, unconstrained)
        values = {**fixed, **hyperparameters}
        sites = self.call.trace(arrays, {**values, **field})
        _, log_prior = constrain(sites, unconstrained)
        left, right, noise = read_factors(self.call, arrays, self.structure, values)
        return (left, right, noise, log_prior), hyperparameters

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
