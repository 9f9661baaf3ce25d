#!/usr/bin/env python3
"""A class has its members in one source, so that a reader knows which file to open. Those that have more are listed here with
their number of sources: the driver interfaces, which a file for each kind of call implements. A number may only fall."""

import collections
import re
import sys

import tree

MOST_SOURCES = {
    "kmm::driver::host::HostDriver": 4,
    "kmm::driver::vendor::VendorDriver": 6,
}
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.MULTILINE)
# At the start of a line, as all definitions outside of classes are: what it returns, the class, the member.
MEMBER = re.compile(r"^(?!\s|#|return|using|namespace|//)[^\n;={}(]*?((?:[A-Za-z_]\w*::)+)(~?[A-Za-z_]\w*|operator[^\s(]+)\s*\(", re.MULTILINE)


def members(text):
    """The class, with the namespace that was opened last, of each definition."""
    events = [(m.start(), "namespace", m.group(1)) for m in NAMESPACE.finditer(text)]
    events += [(m.start(), "member", m.group(1)[:-2]) for m in MEMBER.finditer(text)]
    namespace = ""
    for _, kind, name in sorted(events):
        if kind == "namespace":
            namespace = name
        else:
            yield f"{namespace}::{name}"


def main():
    sources = collections.defaultdict(set)
    paths = tree.files(tree.SOURCES, "src", "tools", "python")
    for path in paths:
        for name in members(tree.read(path)):
            sources[name].add(path)
    problems = []
    for name, among in sorted(sources.items()):
        most = MOST_SOURCES.get(name, 1)
        if len(among) > most:
            problems.append(f"{name}: members in {', '.join(sorted(among))}: in {most} at most")
        elif len(among) < most:
            problems.append(f"{name}: members in {len(among)} sources: lower its number in scripts/check_classes.py")
    problems += [f"{name}: no such class: remove it from scripts/check_classes.py" for name in MOST_SOURCES if name not in sources]
    return tree.report("classes", problems, len(paths))


if __name__ == "__main__":
    sys.exit(main())
