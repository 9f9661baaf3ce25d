#!/usr/bin/env python3
"""Words in comments of src and include that usually stand where a plain noun is missing: "whoever", "nobody", "so many".
Arguments: files or folders to look at instead."""

import re
import sys

import tree

PHRASES = re.compile(r"\b(whoever|nobody|so (?:many|few|long)|the same of|what is (?:there|left|known))\b", re.IGNORECASE)
# Strings and characters come first, so that what looks like a comment inside them is none.
PARTS = re.compile(r'"(?:\\.|[^"\\\n])*"' r"|'(?:\\.|[^'\\\n])+'" r"|(//[^\n]*(?:\n\s*//[^\n]*)*|/\*.*?\*/)", re.DOTALL)
# From the end of a line of a comment to the text of its next line.
BREAK = re.compile(r"\s*\n\s*(?://[/<]*|\*(?!/))?\s*")


def phrases(text):
    """The phrases in comments, also across lines, each with the number of its line."""
    for part in PARTS.finditer(text):
        if part.group(1) is None:
            continue
        comment, starts = "", []  # one line, and where each of the lines begins in it
        for piece in BREAK.split(part.group(1)):
            starts.append(len(comment))
            comment += piece + " "
        first = text.count("\n", 0, part.start()) + 1
        for found in PHRASES.finditer(comment):
            yield first + sum(start <= found.start() for start in starts) - 1, found.group(0)


def main():
    number = 0
    for path in tree.files(tree.HEADERS | tree.SOURCES, *(sys.argv[1:] or ("src", "include"))):
        for line, phrase in phrases(tree.read(path)):
            number += 1
            print(f"{path}:{line}: \"{phrase}\" in a comment: write the noun it stands for")
    print(f"comments: {number} problems")
    return 1 if number else 0


if __name__ == "__main__":
    sys.exit(main())
