# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Four engines on one program, and how to check a fit
#
# An engine computes the posterior, and most engines approximate. Here four of them run the same
# program on the same answers: EP (expectation propagation), Laplace's approximation, NUTS (draws,
# exact in the limit) and mean-field SVI. Three checks follow that need no other engine: a
# certificate, leave-one-out, and simulation-based calibration.

# %%
import time

import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import pandas as pd
from numpyro import handlers
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import relpref
from relpref.diagnostics import calibrate, certify, leave_one_out
from relpref.infer import EP, Laplace, from_samples, noncentered
from relpref.models import xpgp

# %% [markdown]
# ## A problem on which engines differ
#
# Twenty-four cheeses have two attributes, links between cheeses of the same dairy, and sixty
# answers. Some cheeses win or lose each comparison. Their posteriors are skewed.

# %%
rng = np.random.default_rng(2)
names = [f"cheese {number:02d}" for number in range(24)]
cheeses = pd.DataFrame(rng.normal(size=(24, 2)), columns=["age", "salt"], index=names)
links = pd.DataFrame(
    [(names[i], names[j]) for i in range(24) for j in range(i) if i % 6 == j % 6],
    columns=["source", "target"],
)
liking = 2.5 * np.tanh(cheeses["age"]) - cheeses["salt"] ** 2 + np.tile(rng.normal(size=6), 4)
pairs = [rng.choice(names, 2, replace=False) for _ in range(60)]
answers = pd.DataFrame(
    [
        pair if liking[pair[0]] - liking[pair[1]] + rng.normal() > 0 else pair[::-1]
        for pair in pairs
    ],
    columns=["winner", "loser"],
)
data = relpref.PreferenceData.from_tables(cheeses, answers, {"dairy": links})
print(data)

# %% [markdown]
# ## Four posteriors
#
# All engines get the hyperparameters with the largest evidence, which EP finds first (its time
# includes the search). NUTS and SVI run the whitened program (`noncentered`) in float64, and
# `from_samples` gives their draws the methods of a posterior.

# %%
posteriors, seconds = {}, {}


def timed(name, run):
    """Keep what an engine returns, and how long it took, compilation included."""
    start = time.perf_counter()
    posteriors[name] = run()
    seconds[name] = time.perf_counter() - start


timed(
    "EP",
    lambda: EP(xpgp, hyperparameters="maximize").run(jax.random.key(0), data, progress_bar=False),
)
given = {name: np.asarray(value) for name, value in posteriors["EP"].hyperparameters.items()}
known = handlers.condition(noncentered(xpgp), data=given)


def from_draws(draws):
    """A posterior of draws, with the hyperparameters beside them."""
    number = len(draws["utility_base"])
    repeated = {
        name: np.broadcast_to(value, (number, *value.shape)) for name, value in given.items()
    }
    return from_samples({**draws, **repeated}, xpgp, data)


def nuts():
    """Two thousand draws."""
    with jax.enable_x64(True):
        mcmc = MCMC(NUTS(known), num_warmup=200, num_samples=2000, progress_bar=False)
        mcmc.run(jax.random.key(1), data)
        return from_draws(mcmc.get_samples())


def svi():
    """A normal distribution for each whitened coordinate by itself."""
    with jax.enable_x64(True):
        guide = AutoNormal(known)
        search = SVI(known, guide, numpyro.optim.Adam(0.02), Trace_ELBO(num_particles=4))
        found = search.run(jax.random.key(2), 1500, data, progress_bar=False)
        return from_draws(
            guide.sample_posterior(jax.random.key(3), found.params, sample_shape=(2000,))
        )


timed("Laplace", lambda: Laplace(xpgp, fixed=given).run(0, data, progress_bar=False))
timed("NUTS", nuts)
timed("SVI", svi)

# %% [markdown]
# ## Distance from NUTS
#
# Two thousand draws determine a mean to a few hundredths of a posterior standard deviation. They
# are the reference here.

# %%
truth = posteriors["NUTS"]
everyone = [(one, other) for one in names for other in names if one < other]
likely = truth.prefer(everyone)["p_better"]
rows = {}
for name, one in posteriors.items():
    rows[name] = {
        "seconds": seconds[name],
        "largest error of a mean, in sd": np.max(np.abs(one.mean() - truth.mean()) / truth.sd()),
        "sd, over NUTS's": np.mean(one.sd() / truth.sd()),
        "largest error of p_better": np.max(np.abs(one.prefer(everyone)["p_better"] - likely)),
    }
pd.DataFrame(rows).T.round(2)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for name, marker in (("EP", "o"), ("Laplace", "^"), ("SVI", "s")):
    one = posteriors[name]
    left.plot(
        (one.mean() - truth.mean()) / truth.sd(),
        one.sd() / truth.sd(),
        marker,
        markersize=4,
        label=name,
    )
    right.plot(likely, one.prefer(everyone)["p_better"] - likely, marker, markersize=3, alpha=0.6)
left.axvline(0, color="grey", linewidth=1)
left.axhline(1, color="grey", linewidth=1)
left.set(
    xlabel="error of the mean, in posterior sd",
    ylabel="sd over the sd of NUTS",
    title="Each cheese",
)
right.axhline(0, color="grey", linewidth=1)
right.set(xlabel="probability by NUTS that the first is better", ylabel="error", title="Each pair")
left.legend(frameon=False)
plt.show()

# %% [markdown]
# EP's points lie at no error and equal width. Laplace takes the mode for the mean, and its
# probabilities for nearly settled pairs are too close to one half. Mean-field SVI ignores
# correlations: its means are fair, its widths far too small.
#
# ## Check 1: a certificate
#
# Weights turn draws from an approximation into draws from the exact posterior. If the weights are
# nearly equal, the approximation is accurate (Yao et al. 2018; Vehtari et al. 2024). `certify`
# computes them. If the weights are reliable, the certificate has the corrected means.

# %%
for name in ("EP", "Laplace"):
    certificate = certify(posteriors[name])
    print(f"{name}: {certificate.verdict}. {certificate.sentence}\n")

# %% [markdown]
# ## Check 2: leave answers out
#
# EP keeps the contribution of each answer, so it can predict each answer from all others without
# refitting.

# %%
held_out = leave_one_out(posteriors["EP"])
print(
    f"log loss {held_out.log_loss:.2f} (a coin toss has {np.log(2):.2f}), accuracy "
    f"{held_out.accuracy:.2f}"
)
held_out.table.sort_values("probability").head(3).round(2)

# %%
bins = held_out.reliability(bins=4)
figure, axes = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
axes.plot([0, 1], [0, 1], color="grey", linewidth=1)
axes.errorbar(bins["predicted"], bins["observed"], yerr=bins["se"], fmt="o", capsize=3)
axes.set(xlabel="held-out probability", ylabel="observed frequency", title="Sixty answers")
plt.show()

# %% [markdown]
# The table shows the most surprising answers. The picture shows the calibration of the
# probabilities, as far as sixty answers can. (Each answer counts from both sides, so the picture is
# symmetric.)
#
# ## Check 3: calibration
#
# Draw hyperparameters, utilities and answers from the model, fit them, and compute the rank of the
# truth in the posterior. Over many simulations the ranks must be uniform (Talts et al. 2018). The
# picture is their distribution minus the uniform one. The band holds the whole curve of a
# calibrated engine with a probability of 99 %.

# %%
figure, axes = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
for engine, shade in ((EP, "C0"), (Laplace, "C1")):
    calibration = calibrate(xpgp, data, engine=engine, simulations=200, progress_bar=False)
    print(f"{engine.__name__}: {calibration.sentence}")
    grid, lower, upper = calibration.band(0.99)
    share = (calibration.pit[:, None] <= grid).mean(axis=0)
    axes.step(grid, share - grid, where="post", color=shade, label=engine.__name__)
axes.fill_between(
    grid, lower - grid, upper - grid, color="grey", alpha=0.25, label="calibrated, 99 %"
)
axes.legend(frameon=False)
axes.set(xlabel="rank of the truth in the posterior", ylabel="distribution minus the uniform one")
plt.show()

# %% [markdown]
# A curve that first rises and then falls below 0 means that the posterior is too narrow.
#
# ## What was learned
#
# * One program runs under each engine, so differences between posteriors are those of the engines.
# * EP is as accurate as thousands of draws, and much faster. Laplace and mean-field SVI are fast,
#   but their probabilities are off.
# * `certify` checks a fit on your data, `leave_one_out` the model against your answers, and
#   `calibrate` the engine on simulated data.
# * All of this was for given hyperparameters. By default `EP(xpgp)` averages over them.
