"""The words of the phrasebook, and how to read their tables.

Every list is a table of text whose columns are separated by two or more blanks; the grammar is in the other modules.
Meaning decides which words meet: a noun has one kind, and adjectives and verbs name the kinds (or single nouns) that
they go with.
"""


def rows(table: str) -> list[list[str]]:
    """Returns the cells of a table, whose columns are two or more blanks apart."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in table.splitlines() if line.strip()]


def word_lists(table: str) -> tuple[list[str], list[str]]:
    """Returns the English and the German words of a table that lists the ones, an empty line, and the others."""
    english, german = table.split("\n\n")
    return english.split(), german.split()
