"""The mixed graph preference Gaussian process (Kersting & Xu 2009), and parts that programs share.

The shared parts are priors, utilities, answers and decisions.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro import handlers

from relpref.data import Comparisons, PreferenceData
from relpref.data.covariates import EFFECT
from relpref.errors import DataError
from relpref.kernels import (
    AttributeKernel,
    GaussianProcess,
    GraphKernel,
    RegularizedLaplacian,
    SquaredExponential,
    SquaredExponentialPlusLinear,
)
from relpref.kernels.graph import AttributeCovariance, Features, GraphCovariance
from relpref.likelihoods import AnswerModel, answer_model
from relpref.likelihoods.answers import GROUP_SD, SPREADS, weighted
from relpref.likelihoods.chances import NOISE
from relpref.likelihoods.labels import Link, bernoulli
from relpref.likelihoods.tilted import INTEGRATED
from relpref.linalg import Covariance, Identity, NamedSum, real
from relpref.linalg.arrays import namespace

Priors = Mapping[str, dist.Distribution]

# Half-normal with scale 2. The gap of two unrelated items has prior sd √2·amplitude, in units where
# an answer's noise has sd 1. Amplitudes near 0 (this part does not matter: every answer is a coin
# toss) and up to about 4 (most pairs are decided beyond doubt) all stay plausible; far larger ones,
# which only separable answers would ask for, do not.
AMPLITUDE_PRIOR = dist.HalfNormal(2.0)
# A part that often adds nothing (a relation, or the items' own parts beside others) gets half of
# that: with few answers its amplitude stays near the prior, and what it adds by chance costs
# held-out log loss.
ADDED_AMPLITUDE_PRIOR = dist.HalfNormal(1.0)
# Effects shared by the answers of a group, in the same units: from nothing to about twice the noise
# of an answer.
GROUP_SD_PRIOR = dist.HalfNormal(1.0)
INDIVIDUAL = "individual"
# Half-normal with scale 1 for the sd of effects of covariates, each for one unit (of numbers, their
# root mean square difference).
EFFECT_SCALE = f"{EFFECT}_scale"
EFFECT_SCALE_PRIOR = dist.HalfNormal(1.0)


@dataclass
class Hyperparameters:
    """Sampler of hyperparameters, each from the user's prior or the kernel's default."""

    priors: Priors | None
    used: list[str] = field(default_factory=list)

    def sample(self, site: str, default: dist.Distribution) -> Array:
        self.used.append(site)
        return numpyro.sample(site, (self.priors or {}).get(site, default))

    def sample_all(self, priors: Priors, prefix: str = "") -> dict[str, Array]:
        """Sample the hyperparameters of a kernel, whose sites have a prefix."""
        return {name: self.sample(prefix + name, prior) for name, prior in priors.items()}

    def parts(
        self,
        data: PreferenceData,
        attribute_kernel: AttributeKernel | None,
        relation_kernels: Mapping[str, GraphKernel],
        *,
        default_kernel: AttributeKernel | None = None,
        standardize: bool = True,
        normalize: bool = True,
        prefix: str = "",
        unit: bool = False,
    ) -> dict[str, Covariance]:
        """Covariances from attributes and relations, by name.

        The kernel of attributes is `SquaredExponential` where neither argument gives another. With
        ``unit`` the first part has amplitude 1.
        """
        parts: dict[str, Covariance] = {}
        if data.attributes.shape[1] or attribute_kernel is not None:
            kernel = attribute_kernel or default_kernel or SquaredExponential()
            unscaled = getattr(kernel, "unscaled", False)
            amplitude = getattr(kernel, "amplitude_prior", AMPLITUDE_PRIOR)
            attributes = real(
                data.standardized_attributes() if standardize and not unscaled else data.attributes
            )
            # a of a² K_a (XPGP eq. 1)
            size = 1.0 if unit else self.sample(f"{prefix}attributes_amplitude", amplitude)
            priors = kernel.parameters(data.attributes.shape[1])
            values = self.sample_all(priors, f"{prefix}attributes_")
            parts["attributes"] = AttributeCovariance(kernel, attributes, values, size)
        for name, graph_kernel in relation_kernels.items():
            # g of g² K_r (XPGP eq. 2)
            graph, site = data.relations[name], f"{prefix}{name}_amplitude"
            alone = unit and not parts
            size = 1.0 if alone else self.sample(site, ADDED_AMPLITUDE_PRIOR)
            try:
                values = self.sample_all(graph_kernel.parameters(graph), f"{prefix}{name}_")
            except DataError as error:
                raise DataError(f"relation {name!r}: {error}") from None
            parts[name] = GraphCovariance(graph_kernel, graph, values, normalize, size)
        return parts

    def check_all_used(self) -> None:
        """Refuse priors for sites that the program does not have."""
        unknown = [site for site in self.priors or {} if site not in self.used]
        if unknown:
            raise DataError(
                f"priors names the site {unknown[0]!r}, which this program does not have; its "
                f"sites are {', '.join(self.used)}"
            )


def sample_preferences(
    data: PreferenceData,
    hyperparameters: Hyperparameters,
    parts: Mapping[str, Covariance],
    likelihood: AnswerModel | None,
    individual: bool,
    remedy: str,
) -> None:
    """Sample utilities and the answers to them (XPGP eq. 4-6).

    Utilities are the sum of the parts and, if ``individual``, of a part for each item alone.
    """
    if individual:  # b² I
        prior = ADDED_AMPLITUDE_PRIOR if parts else AMPLITUDE_PRIOR
        amplitude = hyperparameters.sample(f"{INDIVIDUAL}_amplitude", prior)
        parts = {**parts, INDIVIDUAL: Identity(data.attributes.shape[0], amplitude)}
    model, answers = answer_model(likelihood), data.comparisons
    values: dict[str, Array] = {}
    for site, prior in model.parameters(answers).items():
        if (spread := values.get(SPREADS.get(site, ""))) is not None:
            prior = dist.LogNormal(0.0, spread)
        with numpyro.plate("rater", len(answers.raters)) if site in SPREADS else nullcontext():
            values[site] = hyperparameters.sample(site, prior)
    group_sd = None if answers.group is None else hyperparameters.sample(GROUP_SD, GROUP_SD_PRIOR)
    effects = 0.0
    if answers.covariates is not None and answers.covariate_scales is not None:
        scale = hyperparameters.sample(EFFECT_SCALE, EFFECT_SCALE_PRIOR)
        sides = answers.covariates / answers.covariate_scales
        normal = dist.Normal(0.0, scale).expand(sides.shape[1:]).to_event(1)
        # Before the utilities: engines fill up the last vector of a program.
        effect = numpyro.sample(EFFECT, normal, infer={"event_dims": ["covariate"]})
        effects = effect @ sides.T
    hyperparameters.check_all_used()
    if not parts:
        raise DataError(remedy)
    process = GaussianProcess(NamedSum(parts))
    utility = numpyro.sample("utility", process, infer={"event_dims": ["item"]})
    gap = utility[answers.winner] - utility[answers.loser] + effects  # the winner comes first
    if group_sd is not None and answers.num_effects:
        gap = gap + group_gaps(answers, group_sd)
    observed = model.value(answers) if data.answered else None
    rows = answers.winner.shape[0]
    plate = (
        numpyro.plate("comparison", rows) if rows else nullcontext()
    )  # numpyro has no empty plates
    with plate, repeated(answers.count):
        numpyro.sample("answer", weighted(model(gap, answers, **values), answers), obs=observed)


def group_gaps(answers: Comparisons, sd: Array) -> Array:
    """Sample the effects of groups on gaps, shape (m,).

    Each item of a group has an independent value, and the difference of two has this sd.
    """
    values = dist.Normal(0.0, sd).expand([answers.num_effects]).to_event(1)
    effect = numpyro.sample("group_effect", values, infer={INTEGRATED: True})
    number: Any = answers.effects
    seen = effect[number] * namespace(number).where(number >= 0, NOISE, 0.0)
    return seen[:, 0] - seen[:, 1]


def repeated(count: ArrayLike) -> handlers.scale:
    """Count each row of a plate ``count`` times, as that many identical answers."""
    return handlers.scale(scale=namespace(count).asarray(count))


# Normal with sd 2: from one class in forty to forty of one, before any feature is looked at.
INTERCEPT_PRIOR = dist.Normal(0.0, 2.0)


def sample_decisions(
    features: Features,
    outcome: ArrayLike | None,
    taken: ArrayLike,
    hyperparameters: Hyperparameters,
    link: Link,
    plate: str,
    *,
    intercept: bool = True,
) -> None:
    """Binary decisions on latent functions w_cᵀφ(x) + b_c, w_c ~ N(0, a² I).

    Sites: ``amplitude`` (a), ``weight`` of shape (k, r), ``intercept`` of shape (k,) and
    ``decision`` of shape (m, k). What the ``features`` of the m examples leave out of the prior
    variance is noise of each example's own. ``outcome``, shape (m, k), is None where decisions are
    unobserved, and ``taken``, shape (m, k), false where one was not reached. There is no
    ``intercept`` where exchanging something must exchange the outcomes. ``plate`` is what the
    examples are called.
    """
    m, functions = jnp.shape(taken)
    amplitude = hyperparameters.sample("amplitude", AMPLITUDE_PRIOR)
    hyperparameters.check_all_used()
    size = features.values.shape[1]
    weight = numpyro.sample(
        "weight", dist.Normal(0.0, amplitude).expand([functions, size]).to_event(2)
    )
    predictor: Array = (weight @ features.values.T).T
    if intercept:
        predictor = predictor + numpyro.sample(
            "intercept", INTERCEPT_PRIOR.expand([functions]).to_event(1)
        )
    spread = None if features.residual is None else (amplitude**2 * features.residual)[:, None]
    examples = (
        numpyro.plate(plate, m, dim=-2) if m else nullcontext()
    )  # numpyro has no empty plates
    with (
        examples,
        numpyro.plate("class", functions, dim=-1),
        handlers.mask(mask=namespace(taken).asarray(taken, bool)),
    ):
        numpyro.sample("decision", bernoulli(link)(predictor, spread), obs=outcome)


def xpgp(
    data: PreferenceData,
    *,
    attribute_kernel: AttributeKernel | None = None,
    relation_kernels: Mapping[str, GraphKernel] | None = None,
    priors: Priors | None = None,
    likelihood: AnswerModel | None = None,
    standardize: bool = True,
    normalize: bool = True,
    individual: bool = True,
) -> None:
    """Utilities from attributes, relations and the items themselves, compared in pairs.

    The model of Kersting & Xu (2009; "XPGP"), eq. 4-6, with a part for each item.

    Parameters
    ----------
    data : PreferenceData
        Without attribute columns, and without an ``attribute_kernel``, there is no attribute part.
    attribute_kernel : AttributeKernel, optional
        `SquaredExponentialPlusLinear` by default, `SquaredExponential` with ``standardize=False``.
        Sites ``attributes_amplitude`` and, for the default, ``attributes_lengthscale`` and
        ``attributes_linear_share``.
    relation_kernels : mapping from relation to GraphKernel, optional
        The regularized Laplacian for every relation not named. Sites ``<relation>_amplitude``,
        ``<relation>_range``. A directed relation has two parts, ``<relation>_linking`` and
        ``<relation>_linked``; its own name stands for both.
    priors : mapping from site to distribution, optional
        Replaces the default prior of a hyperparameter.
    likelihood : AnswerModel, optional
        `Probit` by default, which uses every column of the answers; its parameters are sites as
        well.
    standardize : bool
        Center and scale every attribute (by the data's own moments).
    normalize : bool
        Scale every graph kernel to a mean gap variance of 2 (see `RegularizedLaplacian`).
    individual : bool
        Give every item an independent part with a common variance: what attributes and links do not
        explain. Site ``individual_amplitude``. XPGP lacks it, see ``docs/reproduction.md``; without
        it items of equal attributes and equal links cannot be told apart, whatever the answers say.

    Raises
    ------
    DataError
        If a kernel or a prior is given for a relation or a site that does not exist, or there is no
        part at all.

    Examples
    --------
    >>> from relpref import PreferenceData
    >>> answers = [("tea", "coffee"), ("tea", "water"), ("coffee", "water")]
    >>> data = PreferenceData.from_tables(answers=answers)
    >>> from relpref.infer import EP
    >>> from relpref.models import xpgp
    >>> EP(xpgp).run(0, data).ranking().index.tolist()
    ['tea', 'coffee', 'water']
    """
    given = kernels_by_part(data, relation_kernels)
    kernels = {name: given.get(name, RegularizedLaplacian()) for name in data.relations}
    hyperparameters = Hyperparameters(priors)
    default = default_kernel(standardize)
    parts = hyperparameters.parts(
        data,
        attribute_kernel,
        kernels,
        default_kernel=default,
        standardize=standardize,
        normalize=normalize,
    )
    remedy = (
        "xpgp with individual=False needs attributes or a relation; the data has neither: "
        "leave individual=False out"
    )
    sample_preferences(data, hyperparameters, parts, likelihood, individual, remedy)


def preference_gp(
    data: PreferenceData,
    *,
    attribute_kernel: AttributeKernel | None = None,
    priors: Priors | None = None,
    likelihood: AnswerModel | None = None,
    standardize: bool = True,
    individual: bool = True,
) -> None:
    """Utilities as in `xpgp`, but from attributes and the items alone.

    The baseline of Kersting & Xu 2009 (Chu & Ghahramani 2005). It ignores relations.

    Examples
    --------
    >>> from relpref import PreferenceData
    >>> from relpref.infer import EP
    >>> from relpref.models import preference_gp
    >>> items = {"price": [2.0, 3.0, 1.0]}
    >>> data = PreferenceData.from_tables(items, [(1, 0), (0, 2)])
    >>> posterior = EP(preference_gp).run(0, data)
    """
    hyperparameters = Hyperparameters(priors)
    default = default_kernel(standardize)
    parts = hyperparameters.parts(
        data, attribute_kernel, {}, default_kernel=default, standardize=standardize
    )
    remedy = (
        "preference_gp with individual=False ranks by attributes alone and the items have none; "
        "add columns, use xpgp, or leave "
        "individual=False out"
    )
    sample_preferences(data, hyperparameters, parts, likelihood, individual, remedy)


def default_kernel(standardize: bool) -> AttributeKernel:
    """Return the kernel of attributes that is used by default.

    The share of a linear part has a meaning only in units of standard deviations.
    """
    return SquaredExponentialPlusLinear() if standardize else SquaredExponential()


def kernels_by_part(
    data: PreferenceData, relation_kernels: Mapping[str, GraphKernel] | None
) -> dict[str, GraphKernel]:
    """Kernels by the names of graphs; that of a role takes precedence over that of its relation."""
    kernels: dict[str, GraphKernel] = {}
    given = dict(relation_kernels or {})
    for name, kernel in given.items():
        if name not in data.relations and name not in data.links:
            names = ", ".join(data.relations) or "none"
            raise DataError(f"relation_kernels names the relation {name!r}; the data has: {names}")
        kernels |= {part: given.get(part, kernel) for part in data.parts_of(name)}
    return kernels
