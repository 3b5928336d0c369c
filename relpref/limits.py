"""How large things may be, each with the reason; sorted by room."""

# files
MAX_DECOMPRESSED_GB = 2.0  # a small compressed file may become thousands of times as large; RELPREF_MAX_DECOMPRESSED overrides it

# data
MAX_ATTRIBUTES = 5000  # columns of a table: more are most likely a matrix of words, to be reduced first
MAX_ATTRIBUTE = 1e100  # size of an attribute: squares must stay in the range of float64
MAX_STRENGTHS = 20  # grades of an answer: people do not tell more apart, and each has a threshold; scores are to be grouped
MAX_POSITIONS = 10**9  # rankings times items: 4 GB of positions
# Beyond these the degrees or the eigenvalues of the Laplacian leave the range of float64.
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-100, 1e100
MAX_CELLS_AT_ONCE = 1 << 20  # of a CSV file in memory as text, which takes ten times the room of numbers
MAX_ROWS_AT_ONCE = 1 << 19  # of a Parquet file in memory

# linalg
MAX_CACHED_POSITIONS = 12_000  # whose covariances are kept: 1.2 GB

# kernels
MAX_NODES_OF_SPECTRUM = 1000  # up to which a spectrum costs less than its estimate

# infer: more entities than a matrix has room for
MAX_DENSE_ENTITIES = 4000  # up to which a covariance matrix of all is the simpler and the faster way
MAX_REDUCED_ENTITIES = 8000  # that answers are about, of which there is a matrix: 0.5 GB
MAX_FACTORISED = 5000  # answers or entities that answers are about, the fewer of them, which EP factorizes
MAX_NOTED_ENTITIES = 2000  # of which the prior is looked at once more, for what answers cannot tell apart
MAX_ENTITIES_OF_ANSWERS = 2000  # whose matrix is made for what is said of answers, such as leave-one-out

# data_loaders
MAX_MESSAGE_BYTES = 1 << 22  # of a message of 20 Newsgroups; the longest is a tenth of that

# explore
MAX_ENTITIES_OF_SCORES = 5000  # all pairs of so many are looked at: 12.5 million
MAX_ENTITIES_OF_EXACT_INFORMATION = 400  # one linear system in as many unknowns for each question
MAX_PAIRS_AT_ONCE = 1 << 16  # whose temporaries stay in the processor's cache
MAX_CANDIDATES = (
    600  # where there is no covariance matrix; those that the user names, up to five times as many
)
# Candidates that no answer is about cost a solve with the graph each: so many at most, fewer where the links, times their number, would
# be more than the last.
MAX_NEW_CANDIDATES, MAX_LINKS_TIMES_CANDIDATES = 200, 1e9
# Covariances of the others take products with a matrix of the answers: the square of the answers times the candidates stays below this.
MIN_CANDIDATES, MAX_ANSWERS_SQUARED_TIMES_CANDIDATES = 300, 1e10
MAX_ENTITIES_OF_WORTH = (
    1000  # all pairs of so many are looked at after each answer; of more, so many are drawn
)
MAX_FORECAST_ANSWERS = 50  # one by one; what comes after is read off a curve through these

# ask
MAX_QUICK_ANSWERS = (
    25  # more are learnt at once, by a full update: equal ones are one row, and as many quick changes
)
MAX_INTERVALS = 100  # in a ranking of more entities than a matrix has room for: each takes a solve
MAX_NAME_LENGTH = 80  # of a rater, in characters: what fits a line
MAX_REQUEST_BYTES = 64 * 1024  # a form has a few hundred

# infer: draws of a posterior that are weighted
MAX_PREDICTORS_OF_DRAWS = 2_000_000  # evaluated together: 16 MB
MAX_NUMBERS_OF_DRAWS = 20_000_000  # in all draws: 160 MB

# diagnostics
MAX_ROWS_TAKEN_OUT = 4000  # whose prior covariance is worth factorizing to take a Gaussian site out exactly
MAX_NUMBERS_OF_INFLUENCE = 4_000_000  # in a block of moved means: 32 MB
MAX_NUMBERS_OF_UNIFORM = 1_000_000  # of the null distribution of a calibration, drawn together: 8 MB
MAX_NUMBERS_OF_SIMULATIONS = 1_000_000  # in the covariances of simulations that are fitted at once: 8 MB
MAX_SIMULATIONS_AT_ONCE = 100  # so that progress shows and little is lost when interrupted

# rls
MAX_EVIDENCE_EDGES = (
    1500  # of an incomplete relation whose evidence is looked at; its cost grows with their cube
)
MAX_FACTOR_ENTRY = 1e60  # features whose fourth powers, in products of two kernels, are still numbers
MAX_PREDICTIONS_AT_ONCE = 2**18  # of pairs left out, handed out together: some megabytes
MAX_HELD_OUT_PAIRS_AT_ONCE = 2**15  # whose order is counted together: what is made of them stays in the cache

# classifiers
MAX_LINEAR_EXTENSIONS = 256  # drawn of each ranking that does not place every item
MAX_RANKINGS_OF_ERROR = 100  # whose sampling error says whether there are enough of these
