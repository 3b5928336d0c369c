"""The exact engine: Gaussian labels of a relation under a Kronecker kernel, computed exactly."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from relpref.data import RelationData
from relpref.errors import DataError, InferenceError, UnsupportedProgramError
from relpref.infer.assemble import plain
from relpref.infer.call import Call, Model, Values, broadcast_fixed
from relpref.infer.computing import computing
from relpref.infer.exact.closed import EvidenceGradient
from relpref.infer.exact.domain import Domain
from relpref.infer.exact.edges import Callback, SingularError, require_mesh
from relpref.infer.exact.solve import RelationProblem, Solver
from relpref.infer.exact.structure import ProgramKernel, Structure, find_structure
from relpref.infer.relation_posterior import RelationPosterior
from relpref.infer.search import Search, maximize
from relpref.infer.sites import Info, Sites
from relpref.posterior.gaussian import key_words
from relpref.posterior.origin import Origin
from relpref.result import CODES, Result, progress_line

_STEEP = 1e-3  # largest gradient at a maximum, relative to the objective
# Noise that rounding adds to every label, relative to the size of the kernel of pairs
_FLOOR = 1e-14

_NOT_INTEGRATED = (
    "hyperparameters are at their maximum, where all scores have one closed form; EP on the same "
    "program averages over them"
)
_NO_SITES = Sites.none(0)  # the search expects sites, as EP has


class ExactEvidence(NamedTuple):
    """Evidence in the form for `maximize`, with its gradient by unconstrained hyperparameters."""

    log_evidence: Any
    log_prior: Any
    gradient: Values
    sites: Sites
    info: Info


@dataclass(eq=False, repr=False)
class Exact:
    """Exact posterior of a program with Gaussian labels and a Kronecker covariance of the scores.

    From the program alone it recognizes the pair of each label, constraints on the relation, and
    unknown offsets of conditioning nodes (the ranking loss). A complete relation is solved in
    closed form (under a constraint for regression); anything else by conjugate gradients, with
    variances from a factor of the edges' kernel.

    Parameters
    ----------
    program : callable
        Such as `relpref.models.conditional_ranking`.
    hyperparameters : {"maximize"}
        They maximize log evidence plus log prior, by the exact gradient.
    fixed : mapping from site to value, optional
        Hyperparameters that are known; scalars are broadcast.
    solver : {"auto", "closed", "cg"}
    tol, max_iterations
        Of the conjugate gradients: relative residual, and iterations.
    callback : callable, optional
        ``callback(iteration, dual, residual)`` after each of them; return True to stop, and methods
        of the posterior warn.
    start : RelationPosterior, optional
        Of the same edges by conjugate gradients, such as at other hyperparameters: where the
        iterations start.
    mesh : jax.sharding.Mesh, optional
        Of one axis: devices that share the products of the conjugate gradients, which then replace
        the closed form. The search for hyperparameters and the variances run on the host.
    max_evaluations : int
        Of the evidence.
    throw : bool
        Raise where the result is not ``converged``; otherwise ``info["result"]`` says so.

    Examples
    --------
    >>> import numpy as np
    >>> from relpref import RelationData
    >>> players = {"speed": [0.0, 1.0, 2.0, 3.0]}
    >>> games = np.arange(16.0).reshape(4, 4)
    >>> data = RelationData.from_tables(players, games)
    >>> from relpref.infer import Exact
    >>> from relpref.models import conditional_ranking
    >>> engine = Exact(conditional_ranking, fixed={"noise": 0.5})
    >>> posterior = engine.run(0, data, loss="regression")
    """

    name: ClassVar[str] = "exact"

    program: Model
    _: KW_ONLY
    hyperparameters: Literal["maximize"] = "maximize"
    fixed: Mapping[str, Any] | None = None
    solver: Solver = "auto"
    tol: float = 1e-10
    max_iterations: int | None = None
    callback: Callback | None = None
    start: RelationPosterior | None = None
    mesh: Any = None
    max_evaluations: int = 100
    throw: bool = True

    def __post_init__(self) -> None:
        if not callable(self.program):
            raise DataError(
                f"program is {self.program!r}; Exact takes a numpyro program, such as "
                "relpref.models.conditional_ranking"
            )
        if self.hyperparameters != "maximize":
            raise DataError(
                f"hyperparameters is {self.hyperparameters!r}; Exact maximizes the evidence: "
                "'maximize'"
            )
        if self.max_evaluations < 1:
            raise DataError(f"max_evaluations is {self.max_evaluations}; it must be at least 1")
        if not 0 < self.tol < 1:
            raise DataError(f"tol is {self.tol}; it must lie between 0 and 1")
        self.fixed = dict(self.fixed or {})

    def run(
        self, rng_key: Any, *args: Any, progress_bar: bool = True, **kwargs: Any
    ) -> RelationPosterior:
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
        fixed = dict(self.fixed or {})
        with computing("Exact", rng_key, args, kwargs, fixed):
            call, arrays = Call.split(self.program, args, kwargs)
            structure = find_structure(call, arrays, broadcast_fixed(call, fixed))
            if self.mesh is not None:
                require_mesh(self.mesh, structure.values.shape[0], self.callback)
            search: Search | None = None
            if structure.program.medians:
                with progress_line("Fitting the model", progress_bar) as report:
                    search = maximize(
                        evaluation(structure),
                        structure.program.medians,
                        _NO_SITES,
                        self.max_evaluations,
                        report,
                    )
            origin = Origin(self.program, args, kwargs)
            return self._solve(structure, search, rng_key, origin, progress_bar)

    def _solve(
        self,
        structure: Structure,
        search: Search | None,
        key: Any,
        origin: Origin,
        progress_bar: bool,
    ) -> RelationPosterior:
        left, right, noise, log_prior, values, _ = structure.at(
            {} if search is None else search.unconstrained
        )
        ((field, _),) = structure.program.layout.latents
        among = [a for a in (*origin.args, *origin.kwargs.values()) if isinstance(a, RelationData)]
        data = among[0] if among else None

        def domain(side: Literal["nodes", "objects"], matrix: Any) -> Domain:
            kernel = ProgramKernel(origin, data, values, field, side, matrix)
            given = None if data is None else getattr(data, side) or data.nodes
            labels = tuple(range(len(matrix))) if given is None else given.labels
            names = None if given is None else given.attribute_names
            return Domain(labels, None, kernel, side.removesuffix("s"), names)

        nodes = domain("nodes", left)
        usual = structure.problem(nodes, nodes if right is None else domain("objects", right))
        shift = 0.0 if data is None else data.shift
        problem = replace(usual, solver=self.solver, shift=shift, mesh=self.mesh)
        info: dict[str, Any] = {"engine": self.name, "result": "converged", **problem.describe()}
        if search is not None:  # what the search saw
            info["noise_floor"] = _noise_floor(usual)[0]
            noise += info["noise_floor"]
        scores, iterations, solver = problem.solve(
            noise,
            scale=1.0,
            progress_bar=progress_bar,
            start=self._start_of(problem),
            tol=self.tol,
            max_iterations=self.max_iterations,
            callback=self.callback,
        )
        info |= solver
        converged = iterations is None or iterations.reason == "converged"
        stopped = iterations is not None and iterations.reason == "stopped"  # by the callback
        if search is not None and not converged and not stopped:
            # The search has factorized this kernel many times.
            scores, converged = scores.by_edges(), True
            info["solver"] = "factor of the edges' kernel"
        info["result"] = "converged" if converged else "iterations_not_converged"
        log_evidence: float | None = None
        with suppress(DataError, UnsupportedProgramError):  # there is none, or no memory for it
            structure.require_evidence()
            direct = scores if problem.closed else usual.direct(noise + _noise_floor(usual)[0])
            log_evidence = direct.log_evidence()
        if search is not None:
            info |= {"evaluations": search.evaluations, "gradient_norm": search.gradient_norm}
            info["integration"] = _NOT_INTEGRATED
            # A line search may end where the evidence falls off too steeply to go on, which is no
            # maximum, or at one that rounding hides.
            steep = search.gradient_norm > _STEEP * max(100.0, abs(search.objective))
            given_up = not search.converged and search.evaluations >= self.max_evaluations
            if steep or given_up:
                info["result"] = "hyperparameters_not_converged"
        info["log_prior"] = log_prior
        result = Result[info["result"]]
        if not result.ok and self.throw and not stopped:
            raise InferenceError(f"{result.name}: {result.value}", result)
        return RelationPosterior(
            problem=problem,
            solution=scores,
            hyperparameters={name: plain(value) for name, value in values.items()},
            log_evidence=log_evidence,
            info=info,
            key=key_words(key),
        )

    def _start_of(self, problem: RelationProblem) -> Any:
        """Dual of the posterior ``start``, from which iterations start; None without one."""
        if self.start is None:
            return None
        dual, edges = self.start.solution.arrays().get("dual"), len(problem.values.values)
        if dual is None or len(dual) != edges:
            raise DataError(
                f"start is a posterior that is not from conjugate gradients on {edges} edges; "
                "leave it out"
            )
        return dual


def evaluation(structure: Structure) -> Callable[[Values, Sites], ExactEvidence]:
    """Function of log evidence and prior, whose gradient is pulled back through the program."""
    structure.require_evidence()
    nothing = np.zeros(())
    converged = Info(nothing, nothing, nothing, CODES.index(Result.converged), nothing)

    def domain(matrix: Any) -> Domain:
        return Domain(tuple(range(len(matrix))), None, lambda _: matrix)

    def evaluate(unconstrained: Values, _: Sites) -> ExactEvidence:
        reading = structure.at(unconstrained)
        left, right, noise, log_prior = reading[:4]
        value, by = np.nan, EvidenceGradient(0 * left, 0 * (left if right is None else right), 0.0)
        if 0 < noise < np.inf and np.isfinite(left).all() and np.isfinite(by.right).all():
            nodes = domain(left)
            problem = structure.problem(nodes, nodes if right is None else domain(right))
            floor, by_left, by_right = _noise_floor(problem)
            try:
                scores = problem.direct(noise + floor)
                value, by = scores.log_evidence(), scores.evidence_gradient()
            except SingularError:  # the search turns back
                pass
            by = by._replace(
                left=by.left + by.noise * by_left, right=by.right + by.noise * by_right
            )
        pulled = structure.pulled(reading, by)
        return ExactEvidence(value, log_prior, pulled, _NO_SITES, converged)

    return evaluate


def _noise_floor(problem: RelationProblem) -> tuple[float, Any, Any]:
    """Noise that rounding adds to every label, and its derivatives by K and G.

    Without it the evidence of labels without noise has no maximum.
    """

    def size(side: Domain) -> tuple[float, Any]:
        if not problem.closed:
            return float(np.trace(side.gram)), np.eye(len(side.gram))
        largest, vector = side.eigen.values[-1], side.eigen.vectors[:, -1]
        return float(largest), np.multiply.outer(vector, vector)

    (left, by_left), (right, by_right) = size(problem.nodes), size(problem.objects)
    return _FLOOR * left * right, _FLOOR * right * by_left, _FLOOR * left * by_right
