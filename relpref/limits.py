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

# data_loaders
MAX_MESSAGE_BYTES = 1 << 22  # of a message of 20 Newsgroups; the longest is a tenth of that
