"""Options of reading tables of answers, for functions and for the command line."""

# Their values, and what they say.
OPTIONS = {
    "better": (("low", "high"), "which times or points of the items of an event are the best"),
    "unplaced": (("last", "out"), "whether items without a place (DNF) are below all others"),
    "both_bad": (("tie", "drop"), "whether an answer that both are bad is a tie"),
    "unsure": (("tie", "drop"), "whether an answer such as unsure is a tie"),
}
