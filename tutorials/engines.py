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
# A model says what is believed before the answers; an engine works out what to believe after them, and most engines approximate. Here four of them run the
# same program on the same answers: EP (expectation propagation), Laplace's approximation, NUTS (draws, exact in the long run) and mean-field SVI. Then
# come three checks that need no other engine to compare with: a certificate, answers left out, and simulation-based calibration.

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
# Twenty-four cheeses with two attributes, linked where they come from the same dairy, and sixty answers. Some cheeses win or lose every comparison: that is
# where posteriors are skewed, and where a Gaussian is a compromise.

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
    [pair if liking[pair[0]] - liking[pair[1]] + rng.normal() > 0 else pair[::-1] for pair in pairs],
    columns=["winner", "loser"],
)
data = relpref.PreferenceData.from_tables(cheeses, answers, {"dairy": links})
print(data)

# %% [markdown]
# ## Four posteriors
#
# To compare like with like, all engines get the hyperparameters of largest evidence, which EP finds first (so its time includes the search). numpyro's two run the whitened program
# (`noncentered`) with these given, in float64; `from_samples` gives their draws the same methods as every posterior.

# %%
posteriors, seconds = {}, {}


def timed(name, run):
    """Keep what an engine returns, and how long it took, compilation included."""
    start = time.perf_counter()
    posteriors[name] = run()
    seconds[name] = time.perf_counter() - start


timed("EP", lambda: EP(xpgp, hyperparameters="maximize").run(jax.random.key(0), data, progress_bar=False))
given = {name: np.asarray(value) for name, value in posteriors["EP"].hyperparameters.items()}
known = handlers.condition(noncentered(xpgp), data=given)


def from_draws(draws):
    """A posterior of draws, with the hyperparameters beside them."""
    number = len(draws["utility_base"])
    repeated = {name: np.broadcast_to(value, (number, *value.shape)) for name, value in given.items()}
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
        return from_draws(guide.sample_posterior(jax.random.key(3), found.params, sample_shape=(2000,)))


timed("Laplace", lambda: Laplace(xpgp, fixed=given).run(0, data, progress_bar=False))
timed("NUTS", nuts)
timed("SVI", svi)

# %% [markdown]
# ## How far from NUTS?
#
# Two thousand draws know a mean to a few hundredths of a posterior standard deviation, which serves as the truth here.

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
        (one.mean() - truth.mean()) / truth.sd(), one.sd() / truth.sd(), marker, markersize=4, label=name
    )
    right.plot(likely, one.prefer(everyone)["p_better"] - likely, marker, markersize=3, alpha=0.6)
left.axvline(0, color="grey", linewidth=1)
left.axhline(1, color="grey", linewidth=1)
left.set(xlabel="error of the mean, in posterior sd", ylabel="sd over the sd of NUTS", title="Each cheese")
right.axhline(0, color="grey", linewidth=1)
right.set(xlabel="probability by NUTS that the first is better", ylabel="error", title="Each pair")
left.legend(frameon=False)
plt.show()

# %% [markdown]
# EP's points lie where they should, at no error and equal width. Laplace takes the mode for the mean, and says of pairs that are nearly settled that they are
# more open than they are. Mean-field SVI ignores how coordinates go together: its means are fair, its widths far too small.
#
# ## Check 1: a certificate
#
# Draws from an approximation can be weighted to make them draws from the exact posterior. If the weights are about equal, nothing needed mending (Yao et al. 2018;
# Vehtari et al. 2024). `certify` does that, and says what it found; where the weights can be relied on, the certificate holds the corrected means.

# %%
for name in ("EP", "Laplace"):
    certificate = certify(posteriors[name])
    print(f"{name}: {certificate.verdict}. {certificate.sentence}\n")

# %% [markdown]
# ## Check 2: leave answers out
#
# What would the model have said of each answer, had it not seen it? EP keeps what each answer contributed, so it can be taken away without another fit.

# %%
held_out = leave_one_out(posteriors["EP"])
print(f"log loss {held_out.log_loss:.2f} (a coin toss has {np.log(2):.2f}), accuracy {held_out.accuracy:.2f}")
held_out.table.sort_values("probability").head(3).round(2)

# %%
bins = held_out.reliability(bins=4)
figure, axes = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
axes.plot([0, 1], [0, 1], color="grey", linewidth=1)
axes.errorbar(bins["predicted"], bins["observed"], yerr=bins["se"], fmt="o", capsize=3)
axes.set(xlabel="probability said, answer left out", ylabel="share that happened", title="Sixty answers")
plt.show()

# %% [markdown]
# The table shows the answers that surprise the model most; the picture, whether its probabilities can be taken at their word, as far as sixty answers tell.
# (Each answer counts from both sides, which makes the picture symmetrical.)
#
# ## Check 3: calibration
#
# Draw hyperparameters, utilities and answers from the model itself, fit them, and look where the truth falls in the posterior. Over many simulations its place
# must be uniform (Talts et al. 2018). The picture is the distribution of these places less the uniform one; the band holds the whole curve of a calibrated
# engine with a probability of 99 %.

# %%
figure, axes = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
for engine, colour in ((EP, "C0"), (Laplace, "C1")):
    calibration = calibrate(xpgp, data, engine=engine, simulations=200, progress_bar=False)
    print(f"{engine.__name__}: {calibration.sentence}")
    grid, lower, upper = calibration.band(0.99)
    share = (calibration.pit[:, None] <= grid).mean(axis=0)
    axes.step(grid, share - grid, where="post", color=colour, label=engine.__name__)
axes.fill_between(grid, lower - grid, upper - grid, color="grey", alpha=0.25, label="calibrated, 99 %")
axes.legend(frameon=False)
axes.set(xlabel="place of the truth in the posterior", ylabel="distribution less the uniform one")
plt.show()

# %% [markdown]
# A curve that rises first and falls below 0 later is that of a posterior that is too narrow: the truth lies in its tails too often.
#
# ## What was learned
#
# * One program, any engine: the difference between posteriors is then the engine's alone.
# * EP is as near to the truth as thousands of draws, and much quicker once it is compiled. Laplace and mean-field SVI are quick as well, but their probabilities are off.
# * `certify` checks a fit on your own data, `leave_one_out` the model against your answers, and `calibrate` the engine on data that the model itself made up, before there is any answer.
# * All of it here was for given hyperparameters. By default `EP(xpgp)` averages over them.
