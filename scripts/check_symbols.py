#!/usr/bin/env python3
"""What libkmm_rmm and libkmm have of fmt stays inside: usage check_symbols.py LIBRARY... Neither needs libfmt.so, and no
name of fmt is exported or asked for; but kmm::driver::vformat (src/driver/format.hpp) goes from one to the other."""

import re
import subprocess
import sys

# The class of fmt's exceptions is made visible by fmt 10 and newer itself; it is in our namespace all the same.
ALLOWED = re.compile(r"kmm::driver::vformat|(vtable for |typeinfo for |typeinfo name for )?fmt::kmm_own::format_error\b")


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def problems_of(library):
    for line in output_of("readelf", "-d", library).splitlines():
        if "(NEEDED)" in line and "libfmt" in line:
            yield f"{library} needs libfmt: {line.strip()}"
    symbols = output_of("nm", "-D", "-C", library).splitlines()
    if not any("kmm::" in line for line in symbols):
        yield f"{library}: no name of kmm among its symbols: is it one of our shared libraries?"
    for line in symbols:
        name = line[17:].split(" ", 1)[-1]
        if "fmt::" in name and not ALLOWED.match(name):
            yield f"{library}: a name of fmt that other libraries see: {name}"


def main():
    problems = [problem for library in sys.argv[1:] for problem in problems_of(library)]
    print("\n".join(problems) or f"symbols: {len(sys.argv) - 1} libraries, no name of fmt outside")
    return 1 if problems or len(sys.argv) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
