# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # A program of your own, and EP runs it
#
# The models of this package are numpyro programs, and its engines know none of them: an engine reads a program, whichever it is. So a model
# that nobody thought of is a few lines away. Here: chess players whose strength changes over the seasons, and an advantage for White that is
# to be learned as well. EP (expectation propagation) fits it in an instant, and NUTS, numpyro's own sampler, checks it on the same lines of code.

# %%
import time

import arviz_plots
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from numpyro.infer import MCMC, NUTS

from relpref.infer import EP, from_samples, noncentered
from relpref.kernels import GaussianProcess
from relpref.likelihoods import ProbitComparison
from relpref.linalg import Dense, NamedSum

# %% [markdown]
# ## The games
#
# Eight players, eight seasons, 35 games in each. Anna rises, Boris falls, Carla has two great seasons, the others stay what they are, and White
# has an advantage of 0.3, in units of the noise of one game.

# %%
players, seasons, games = ["Anna", "Boris", "Carla", "Dmitri", "Edda", "Farid", "Gita", "Hugo"], 8, 35
time_line = np.arange(seasons)

truth = np.repeat(np.array([0, 0, 0, 0.8, 0.4, 0, -0.4, -0.8])[:, None], seasons, axis=1)
truth[0] += np.linspace(-1.2, 1.2, seasons)
truth[1] += np.linspace(1.2, -1.2, seasons)
truth[2] += 1.8 * np.exp(-((time_line - 4.5) ** 2))

rng = np.random.default_rng(5)
season = np.repeat(time_line, games)
white = rng.integers(len(players), size=season.size)
black = (white + rng.integers(1, len(players), size=season.size)) % len(players)
white_won = (0.3 + truth[white, season] - truth[black, season] + rng.standard_normal(season.size) > 0).astype(
    int
)
names = np.array(players)
pd.DataFrame({"season": season, "white": names[white], "black": names[black], "white_won": white_won}).head(3)

# %% [markdown]
# ## The program
#
# A strength for each player and season, as one Gaussian vector. Its covariance is a sum of two parts with names: a `level` that a player
# keeps, and a `form` that drifts, so that seasons which are `years` apart have little in common. `level_sd`, `form_sd` and `years` are
# hyperparameters: any distribution will do as a prior. White's `advantage` is one more Gaussian. The last line says how a game is
# decided: `ProbitComparison(gap)` is won with probability Φ(gap).
#
# That is all an engine needs: Gaussian sites (`GaussianProcess`, or numpyro's `Normal` and `MultivariateNormal`), predictors that are linear in
# them, and a likelihood of `relpref.likelihoods` or numpyro's `Normal`. Whatever does not fit is refused by name.


# %%
def careers(white, black, season, white_won=None):
    """Strengths that change over the seasons, and games between two players."""
    level_sd = numpyro.sample("level_sd", dist.HalfNormal(1.0))
    form_sd = numpyro.sample("form_sd", dist.HalfNormal(1.0))
    years = numpyro.sample("years", dist.LogNormal(jnp.log(3.0), 0.7))

    same_player = jnp.eye(len(players))
    level = jnp.kron(same_player, jnp.ones((seasons, seasons)))
    apart = time_line[:, None] - time_line
    form = jnp.kron(same_player, jnp.exp(-0.5 * jnp.square(apart / years)))
    covariance = NamedSum({"level": Dense(level_sd**2 * level), "form": Dense(form_sd**2 * form)})
    strength = numpyro.sample("strength", GaussianProcess(covariance))
    advantage = numpyro.sample("advantage", dist.Normal(0.0, 0.5))

    gap = advantage + strength[white * seasons + season] - strength[black * seasons + season]
    with numpyro.plate("game", len(white)):
        numpyro.sample("white_won", ProbitComparison(gap), obs=white_won)


# %% [markdown]
# ## EP runs it
#
# It averages over the hyperparameters, too; what is printed of them are posterior means.

# %%
start = time.perf_counter()
posterior = EP(careers).run(jax.random.key(0), white, black, season, white_won=white_won, progress_bar=False)
seconds = {"EP": time.perf_counter() - start}
print(posterior)
print({name: round(float(value), 2) for name, value in posterior.hyperparameters.items()})
print(
    f"White's advantage: {posterior.mean(site='advantage')[0]:.2f} ± {posterior.sd(site='advantage')[0]:.2f}, truly 0.30"
)


# %%
def show(axes, player, one, colour, label):
    """A player's strength against the average player of each season, with 90 % intervals."""
    at = np.arange(seasons)
    weights = np.zeros((seasons, len(players), seasons))
    weights[at, :, at] = -1 / len(players)
    weights[at, player, at] += 1
    weights = weights.reshape(seasons, -1)
    mean, sd = one.mean(weights, site="strength"), one.sd(weights, site="strength")
    axes.plot(time_line, mean, color=colour, label=label)
    axes.fill_between(time_line, mean - 1.645 * sd, mean + 1.645 * sd, color=colour, alpha=0.2)


figure, grid = plt.subplots(2, 4, figsize=(10, 4.6), sharex=True, sharey=True, layout="constrained")
for player, axes in enumerate(grid.flat):
    show(axes, player, posterior, "C0", "EP, 90 %")
    axes.plot(time_line, truth[player] - truth.mean(axis=0), "k--", linewidth=1, label="truth")
    axes.set_title(players[player])
grid[0, 0].legend(fontsize=8)
figure.supxlabel("season")
figure.supylabel("strength against the average")
plt.show()

# %% [markdown]
# The blue bands follow the dashed truth: Anna's rise, Boris's decline, and Carla's two seasons, smoothed because few games tell of them.
#
# ## NUTS runs it, too
#
# The same function, unchanged, under numpyro. `noncentered` whitens the Gaussian sites, which makes the sampler's work easy, and
# `from_samples` gives its draws the same methods as an engine's posterior. Draws need float64, hence `enable_x64`.

# %%
start = time.perf_counter()
with jax.enable_x64(True):
    mcmc = MCMC(NUTS(noncentered(careers)), num_warmup=200, num_samples=400, progress_bar=False)
    mcmc.run(jax.random.key(1), white, black, season, white_won=white_won)
    sampled = from_samples(mcmc.get_samples(), careers, white, black, season, white_won=white_won)
seconds["NUTS"] = time.perf_counter() - start
apart = (posterior.mean(site="strength") - sampled.mean(site="strength")) / sampled.sd(site="strength")
print({name: f"{value:.1f} s" for name, value in seconds.items()})
print(f"means differ by at most {np.abs(apart).max():.2f} posterior standard deviations")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
for axes, what in ((left, "mean"), (right, "sd")):
    pair = [getattr(one, what)(site="strength") for one in (sampled, posterior)]
    axes.scatter(*pair, s=12)
    ends = [min(map(np.min, pair)), max(map(np.max, pair))]
    axes.plot(ends, ends, color="grey", linewidth=1)
    axes.set(xlabel="NUTS", ylabel="EP", title=f"posterior {what} of all strengths")
plt.show()

# %% [markdown]
# The means lie near the diagonal. EP's standard deviations are smaller: it takes the hyperparameters that it found for certain, while NUTS
# averages over them. How uncertain they are is seen in NUTS's draws, through ArviZ:

# %%
tree = sampled.to_datatree()
arviz_plots.plot_dist(tree, var_names=["level_sd", "form_sd", "years", "advantage"], backend="matplotlib")
plt.show()

# %% [markdown]
# `EP(careers, hyperparameters="nuts")` averages over them as well, without sampling the strengths.
#
# ## Which part is it?
#
# Because the covariance is a sum of parts with names, the posterior knows what each contributes.

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
# ## What was learned
#
# * A program with Gaussian sites and one of the package's likelihoods runs under EP as it stands; nothing has to be registered.
# * The very same function runs under NUTS, so a fast answer can always be checked against a slow one.
# * EP's means are those of NUTS to within a fraction of a standard deviation. Its intervals are conditional on the hyperparameters it found, and
#   so too short where these are uncertain, unless one asks for `hyperparameters="nuts"`.
# * Name the parts of a covariance, and the posterior says what each of them contributed.
