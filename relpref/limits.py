"""Limits on sizes, each with the reason, and checks of the available memory."""

import ctypes
import math
import os

from relpref.errors import DataError

# files
# A small compressed file may become thousands of times as large; RELPREF_MAX_DECOMPRESSED
# overrides this.
MAX_DECOMPRESSED_GB = 2.0

# data
MAX_ATTRIBUTES = 5000  # columns of a table; more are most likely a matrix of words
MAX_ATTRIBUTE = 1e100  # size of an attribute or covariate: squares stay in the range of float64
# Levels of a category that becomes columns, each with a lengthscale; a relation has two
# hyperparameters.
MAX_LEVELS = 5
MAX_PAIRS_OF_LEVELS = 5e6  # pairs of items that are linked by a shared value
MAX_COVARIATES = 32  # effects of covariates: each is an entry of every row of the projection
# Grades of an answer: people distinguish no more, and each has a threshold. Group finer scores.
MAX_STRENGTHS = 20
MAX_POSITIONS = 10**9  # rankings times items: 4 GB of positions
# Beyond these the degrees or the eigenvalues of the Laplacian leave the range of float64.
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-100, 1e100
MAX_CELLS_AT_ONCE = 1 << 20  # of a CSV file in memory as text, ten times as large as numbers
MAX_ROWS_AT_ONCE = 1 << 19  # of a Parquet file in memory

# linalg
# Jitter on the diagonal of an n x n covariance tried in turn, as multiples of n·eps·mean(diag):
# rounding alone makes its smallest eigenvalue uncertain by about n·eps times its largest one, so
# anything below the first step cannot help.
JITTERS = (0.0, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5)
MAX_CACHED_POSITIONS = 12_000  # rows of cached covariances: 1.2 GB

# kernels
MAX_NODES_OF_SPECTRUM = 1000  # up to which a spectrum costs less than its estimate

# infer: more items than fit into a matrix
MAX_DENSE_ITEMS = 4000  # up to which the full covariance matrix is simpler and faster
MAX_REDUCED_ITEMS = 8000  # items with answers, which have a matrix: 0.5 GB
MAX_FACTORISED = 5000  # answers, or items with answers if these are fewer, which EP factorizes
MAX_NOTED_ITEMS = 2000  # whose prior is checked for differences that answers cannot determine
MAX_ITEMS_OF_ANSWERS = 2000  # whose matrix is formed for diagnostics such as leave-one-out

# data_loaders
MAX_MESSAGE_BYTES = 1 << 22  # of a message of 20 Newsgroups; the longest is a tenth of that

# explore
MAX_ITEMS_OF_SCORES = 5000  # items whose pairs are all scored: 12.5 million
MAX_ITEMS_OF_EXACT_INFORMATION = 400  # one linear system in as many unknowns for each question
MAX_PAIRS_AT_ONCE = 1 << 16  # whose temporaries stay in the processor's cache
MAX_CANDIDATES = 600  # without a covariance matrix; if named by the user, up to five times as many
# Each candidate without answers costs a solve with the graph: there are fewer if links times
# candidates exceed the second number.
MAX_NEW_CANDIDATES, MAX_LINKS_TIMES_CANDIDATES = 200, 1e9
# Covariances of the others take products with a matrix of the answers: the square of the answers
# times the candidates stays below this.
MIN_CANDIDATES, MAX_ANSWERS_SQUARED_TIMES_CANDIDATES = 300, 1e10
MAX_ITEMS_OF_GAIN = 1000  # whose pairs are all scored after each answer; drawn from more items
MAX_FORECAST_ANSWERS = 50  # computed one by one; later ones lie on a curve through these

# ask
# More are learned at once, by a full update; equal answers are one row, but as many quick changes.
MAX_QUICK_ANSWERS = 25
# Posterior sds: beyond this the next question waits for a full update, which takes a second for
# 300 items.
MAX_QUICK_ERROR_OF_ASKING = 0.25
MAX_INTERVALS = 100  # in a ranking of too many items for a matrix: each takes a solve
MAX_NAME_LENGTH = 80  # of a rater, in characters: what fits a line
MAX_PROMPT_LENGTH = 200  # of a page's title and question, in characters
MAX_REQUEST_BYTES = 64 * 1024  # a form has a few hundred

# infer: mixtures over hyperparameters
MAX_NUMBERS_OF_POINTS = 64_000_000  # in the matrices of all points: 512 MB, 16 of 2000 items
MAX_NUMBERS_OF_MIXTURE = 30_000_000  # in the covariances of all draws: 240 MB

# infer: weighted draws of a posterior
MAX_PREDICTORS_OF_DRAWS = 2_000_000  # evaluated together: 16 MB
MAX_NUMBERS_OF_DRAWS = 20_000_000  # in all draws: 160 MB
MAX_CHECKED_NUMBERS = 125_000_000  # integrands of lists in a check: about two seconds
MAX_CHECKED = 150  # latent values of a fit that checks itself; with more, weights vary too much

# diagnostics
MAX_ROWS_TAKEN_OUT = 4000  # whose prior covariance is factorized to remove a site exactly
MAX_NUMBERS_OF_INFLUENCE = 4_000_000  # in a block of moved means: 32 MB
MAX_ORDERS_OF_LIST = 720  # whose probabilities are added up, by importance sampling, for one list
MAX_NUMBERS_OF_UNIFORM = 1_000_000  # of a calibration's null distribution drawn together: 8 MB
MAX_NUMBERS_OF_SIMULATIONS = 1_000_000  # in covariances that are fitted at once: 8 MB
MAX_SIMULATIONS_AT_ONCE = 100  # so that progress shows and little is lost when interrupted

# rls
MAX_EVIDENCE_EDGES = 1500  # of an incomplete relation; the cost grows with the cube
MAX_FACTOR_ENTRY = 1e60  # features whose fourth powers, in products of kernels, are finite
MAX_PREDICTIONS_AT_ONCE = 2**18  # of pairs left out, returned together: some megabytes
MAX_HELD_OUT_PAIRS_AT_ONCE = 2**15  # counted together: temporaries stay in the cache

# classifiers
MAX_LINEAR_EXTENSIONS = 256  # drawn of each ranking that does not place every item
MAX_RANKINGS_OF_ERROR = 100  # whose sampling error says whether there are enough of these


def require_memory(number_of_bytes: float, purpose: str) -> None:
    """Refuse a computation that needs more memory than is available."""
    available = available_memory()
    if number_of_bytes > available:
        raise DataError(
            f"{purpose} needs {number_of_bytes / 1e9:.2f} GB of memory and {available / 1e9:.2f} "
            "GB are available; take fewer of them or a machine with more"
        )


def fits(number_of_bytes: float) -> bool:
    """Whether so much memory is available; True if unknown."""
    return number_of_bytes <= available_memory()


def available_memory() -> float:
    """Bytes available without swapping on Linux, physical memory elsewhere; inf if unknown."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return 1024.0 * float(line.split()[1])
    except OSError:
        pass
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * float(os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        return math.inf


def resident_memory() -> float | None:
    """Bytes of physical memory that this process uses on Linux; None elsewhere."""
    try:
        with open("/proc/self/statm", encoding="ascii") as line:
            return float(line.read().split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def release_memory() -> None:
    """Return free memory of the process to the system, with a C library that can (glibc)."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError, TypeError):
        pass
