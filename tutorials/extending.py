# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Extending: a kernel, a likelihood and a program of your own
#
# The models of relpref are numpyro programs, and the engines read any program. This tutorial adds a
# kernel to the default model, writes a likelihood, and uses it in a new program. EP fits each of
# them, and NUTS checks the last one.

# %%
import time
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from numpyro.infer import MCMC, NUTS

import relpref
from relpref.infer import EP, from_samples, noncentered
from relpref.kernels import GaussianProcess
from relpref.likelihoods import ProbitComparison, TiltedMoments
from relpref.linalg import Dense, NamedSum

# %% [markdown]
# ## A kernel
#
# Guests compare the opening hours of a bar. An hour is a point on a circle: 23 is close to 1. The
# squared exponential kernel does not know this, a periodic kernel does. A kernel is a frozen
# dataclass with the priors of its hyperparameters (`parameters`) and a covariance of the attributes
# (a call). `cross` gives the covariance with new items.


# %%
@jax.tree_util.register_static
@dataclass(frozen=True)
class Periodic:
    """exp(-2 sin²(π |x - x'| / period) / lengthscale²) (Rasmussen & Williams 2006, eq. 4.31)."""

    period: float

    def parameters(self, num_attributes):
        return {"lengthscale": dist.LogNormal(0.0, 1.0)}

    def __call__(self, attributes, *, lengthscale):
        return Dense(self.cross(attributes, attributes, lengthscale=lengthscale))

    def cross(self, rows, columns, *, lengthscale):
        angle = jnp.pi * (rows[:, None] - columns) / self.period
        return jnp.exp(-2 * jnp.sum(jnp.sin(angle) ** 2, axis=-1) / lengthscale**2)


rng = np.random.default_rng(2)
hours = pd.DataFrame({"hour": np.arange(24.0)}, index=[f"{hour:02d}:00" for hour in range(24)])
liking = 1.5 * np.cos(2 * np.pi * (np.arange(24) - 23.5) / 24)
pairs = np.array([rng.choice(24, 2, replace=False) for _ in range(60)])
first = liking[pairs[:, 0]] - liking[pairs[:, 1]] + rng.normal(size=60) > 0
answers = pd.DataFrame(
    hours.index.to_numpy()[np.where(first[:, None], pairs, pairs[:, ::-1])],
    columns=["winner", "loser"],
)

options = {"individual": False, "standardize": False, "progress_bar": False}
fits = {
    "periodic": relpref.fit(hours, answers, attribute_kernel=Periodic(24.0), **options),
    "squared exponential": relpref.fit(hours, answers, **options),
}
print({name: round(float(one.log_evidence), 1) for name, one in fits.items()})

# %%
figure, grid = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
for axes, (name, one) in zip(grid, fits.items(), strict=True):
    ranking = one.ranking().loc[hours.index]
    axes.fill_between(
        hours["hour"], ranking["lower"], ranking["upper"], alpha=0.25, label="90 % interval"
    )
    axes.plot(hours["hour"], ranking["mean"])
    axes.plot(hours["hour"], liking - liking.mean(), "k--", linewidth=1, label="truth")
    axes.set(title=name, xlabel="hour")
grid[0].set_ylabel("utility relative to the average")
grid[0].legend(frameon=False)
plt.show()

# %% [markdown]
# The periodic kernel has the larger evidence and the narrower band, because each hour learns from
# both of its neighbors.
#
# ## A likelihood
#
# Chess players blunder. The stronger player wins with probability Φ(difference of the strengths),
# but with a small probability the result is a coin toss. A likelihood is a numpyro distribution
# with `log_prob`, and EP integrates it numerically. Here the moments have a closed form, so
# `tilted` gives them, which is faster. `predictor` names the number that the answer depends on.


# %%
class Blunder(dist.Distribution):
    """The first wins with probability Φ(predictor), or 1/2 after a blunder."""

    arg_constraints: ClassVar = {
        "predictor": dist.constraints.real,
        "chance": dist.constraints.unit_interval,
    }
    support = dist.constraints.boolean
    reparametrized_params: ClassVar = []

    def __init__(self, predictor, chance, *, validate_args=None):
        self.predictor, self.chance = jnp.asarray(predictor), jnp.asarray(chance)
        super().__init__(batch_shape=self.predictor.shape, validate_args=validate_args)

    def mixed(self, log_probability):
        return jnp.logaddexp(jnp.log1p(-self.chance) + log_probability, jnp.log(self.chance / 2))

    def log_prob(self, value):
        return self.mixed(ProbitComparison(self.predictor).log_prob(value))

    def tilted(self, value, mean, variance):
        """Log of the expected probability under N(mean, variance), its derivative, and minus the
        second one.
        """
        played = ProbitComparison(mean).tilted(value, mean, variance)
        total = self.mixed(played.log_normalizer)
        share = jnp.exp(jnp.log1p(-self.chance) + played.log_normalizer - total)  # not a blunder
        curvature = share * played.curvature - share * (1 - share) * played.gradient**2
        return TiltedMoments(total, share * played.gradient, curvature)


# %% [markdown]
# ## A program
#
# The strength of a player changes over the seasons. There are six players, six seasons and 30 games
# in each. Anna improves, Boris declines, and Carla has two very good seasons. White has an
# advantage of 0.3, and 8 % of the games have a blunder.

# %%
players, seasons, games = ["Anna", "Boris", "Carla", "Dmitri", "Edda", "Farid"], 6, 30
time_line = np.arange(seasons)
truth = np.repeat(np.array([0, 0, 0, 0.8, 0.3, -0.8])[:, None], seasons, axis=1)
truth[0] += np.linspace(-1.2, 1.2, seasons)
truth[1] += np.linspace(1.2, -1.2, seasons)
truth[2] += 1.8 * np.exp(-((time_line - 3.5) ** 2))

rng = np.random.default_rng(5)
season = np.repeat(time_line, games)
white = rng.integers(len(players), size=season.size)
black = (white + rng.integers(1, len(players), size=season.size)) % len(players)
gap = 0.3 + truth[white, season] - truth[black, season]
white_won = np.where(
    rng.random(season.size) < 0.08,
    rng.random(season.size) < 0.5,
    gap + rng.normal(size=season.size) > 0,
).astype(int)

# %% [markdown]
# The program has one Gaussian vector with an entry for each player and season. Its covariance is
# the sum of two named parts: a `level` that a player keeps, and a `form` that changes. `level_sd`,
# `form_sd`, `years` and `chance` are hyperparameters. White's `advantage` is one more Gaussian. An
# engine needs nothing else: Gaussian sites, predictors that are linear in them, and a likelihood.


# %%
def careers(white, black, season, white_won=None):
    """Strengths that change over the seasons."""
    level_sd = numpyro.sample("level_sd", dist.HalfNormal(1.0))
    form_sd = numpyro.sample("form_sd", dist.HalfNormal(1.0))
    years = numpyro.sample("years", dist.LogNormal(jnp.log(3.0), 0.7))
    chance = numpyro.sample("chance", dist.Beta(1.0, 9.0))

    same_player = jnp.eye(len(players))
    level = jnp.kron(same_player, jnp.ones((seasons, seasons)))
    form = jnp.kron(
        same_player, jnp.exp(-0.5 * jnp.square((time_line[:, None] - time_line) / years))
    )
    covariance = NamedSum({"level": Dense(level_sd**2 * level), "form": Dense(form_sd**2 * form)})
    strength = numpyro.sample("strength", GaussianProcess(covariance))
    advantage = numpyro.sample("advantage", dist.Normal(0.0, 0.5))

    gap = advantage + strength[white * seasons + season] - strength[black * seasons + season]
    with numpyro.plate("game", len(white)):
        numpyro.sample("white_won", Blunder(gap, chance), obs=white_won)


start = time.perf_counter()
posterior = EP(careers).run(
    jax.random.key(0), white, black, season, white_won=white_won, progress_bar=False
)
seconds = {"EP": time.perf_counter() - start}
print({name: round(float(value), 2) for name, value in posterior.hyperparameters.items()})
advantage, sd = posterior.mean(site="advantage")[0], posterior.sd(site="advantage")[0]
print(f"White's advantage: {advantage:.2f} ± {sd:.2f} (truth: 0.30)")

# %% tags=["thumbnail"]
figure, grid = plt.subplots(2, 3, figsize=(9, 4.8), sharex=True, sharey=True, layout="constrained")
for player, axes in enumerate(grid.flat):
    # The player's strength minus the average of all players in the same season.
    weights = np.zeros((seasons, len(players), seasons))
    weights[time_line, :, time_line] = -1 / len(players)
    weights[time_line, player, time_line] += 1
    weights = weights.reshape(seasons, -1)
    mean, sd = posterior.mean(weights, site="strength"), posterior.sd(weights, site="strength")
    axes.plot(time_line, mean, label="posterior mean")
    axes.fill_between(
        time_line, mean - 1.645 * sd, mean + 1.645 * sd, alpha=0.2, label="90 % interval"
    )
    axes.plot(time_line, truth[player] - truth.mean(axis=0), "k--", linewidth=1, label="truth")
    axes.set_title(players[player])
grid[0, 0].legend(fontsize=8)
figure.supxlabel("season")
figure.supylabel("strength relative to the average")
plt.show()

# %% [markdown]
# The parts have names, so the posterior reports the contribution of each.

# %%
parts = posterior.parts["strength"].means
pd.DataFrame(
    {
        "level": parts["level"].reshape(-1, seasons)[:, 0],
        "form, first season": parts["form"].reshape(-1, seasons)[:, 0],
        "form, last season": parts["form"].reshape(-1, seasons)[:, -1],
    },
    index=players,
).round(2)

# %% [markdown]
# ## The check
#
# numpyro runs the same function. `noncentered` whitens the Gaussian sites, which makes sampling
# easier, and `from_samples` gives the draws the methods of a posterior.

# %%
start = time.perf_counter()
with jax.enable_x64(True):
    mcmc = MCMC(NUTS(noncentered(careers)), num_warmup=200, num_samples=400, progress_bar=False)
    mcmc.run(jax.random.key(1), white, black, season, white_won=white_won)
    sampled = from_samples(mcmc.get_samples(), careers, white, black, season, white_won=white_won)
seconds["NUTS"] = time.perf_counter() - start
difference = (posterior.mean(site="strength") - sampled.mean(site="strength")) / sampled.sd(
    site="strength"
)
print({name: f"{value:.1f} s" for name, value in seconds.items()})
print(f"means differ by at most {np.abs(difference).max():.2f} posterior standard deviations")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
for axes, what in ((left, "mean"), (right, "sd")):
    pair = [getattr(one, what)(site="strength") for one in (sampled, posterior)]
    axes.scatter(*pair, s=12)
    ends = [min(map(np.min, pair)), max(map(np.max, pair))]
    axes.plot(ends, ends, color="grey", linewidth=1)
    axes.set(xlabel="NUTS", ylabel="EP", title=f"posterior {what} of each strength")
plt.show()

# %% [markdown]
# Both engines average over the hyperparameters, and the points lie close to the diagonal.
#
# ## What was learned
#
# * A kernel is a class with `parameters` and a call. Pass it to
#   `relpref.fit(attribute_kernel=...)`.
# * A likelihood is a numpyro distribution with `log_prob`. EP integrates it numerically unless
#   `tilted` gives the moments.
# * A program with Gaussian sites runs under EP and NUTS without registration. One checks the other.
# * `relpref.register` makes kernels and likelihoods known to files and the command line: see
#   "Extending relpref" in the documentation.
