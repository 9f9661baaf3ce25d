#!/usr/bin/env python3
"""Compares the stub of the native module rmm._core in the tree with what the module has.

    python_stub.py STUB OUT     rmm is found on PYTHONPATH; OUT gets what nanobind's stubgen makes of rmm._core

What stubgen makes has the right names but wide types, since the module checks many arguments itself; the stub in the
tree is written by hand, with narrow ones. They must declare the same classes, functions, constants and members, and the
same parameters: names, order, kinds, which may be left out."""

import ast
import sys
from pathlib import Path


def generate(out):
    from nanobind.stubgen import StubGen

    import rmm._core as core

    class OneModule(StubGen):
        """What says that it belongs to another module of the package is declared here all the same: it is made here."""

        def put_function(self, function, name=None, parent=None):
            if type(function).__module__ == "nanobind":
                self.put_nb_func(function, name)
            else:
                super().put_function(function, name, parent)

    for value in vars(core).values():
        if isinstance(value, type):
            value.__module__ = core.__name__
    stub = OneModule(module=core, quiet=True, include_docstrings=False)
    stub.put(core)
    Path(out).write_text(stub.get(), encoding="utf-8")


def parameters(function, is_bound):
    """What a call may look like: {name: [kind, whether it may be left out]} of every parameter but self."""
    named = function.args
    plain = named.posonlyargs + named.args
    optional = len(plain) - len(named.defaults)
    found = {a.arg: ["in order", number >= optional] for number, a in enumerate(plain)}
    if is_bound and plain:
        del found[plain[0].arg]
    if named.vararg:
        found["*"] = ["many", True]
    found.update(
        {
            a.arg: ["by name", default is not None]
            for a, default in zip(named.kwonlyargs, named.kw_defaults, strict=True)
        }
    )
    if named.kwarg:
        found["**"] = ["many", True]
    return found


def merged(known, call):
    """Of two overloads: what one of them lacks may be left out."""
    return {
        name: [(known.get(name) or call[name])[0], any(name not in c or c[name][1] for c in (known, call))]
        for name in [*known, *(n for n in call if n not in known)]
    }


def declared(body, is_class=False):
    """Name -> what it is, of a module or a class. Names that begin with one underscore are the stub's own."""
    found = {}
    for node in body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = declared(node.body, True)
        elif isinstance(node, ast.FunctionDef):
            words = {getattr(d, "attr", getattr(d, "id", None)) for d in node.decorator_list}
            if "setter" in words:
                found[node.name] = "writable"
            elif "property" in words:
                found[node.name] = "read only"
            else:
                call = parameters(node, is_class and "staticmethod" not in words)
                found[node.name] = ("call", merged(found[node.name][1], call) if node.name in found else call)
        elif isinstance(node, (ast.AnnAssign, ast.Assign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                found[target.id] = "writable" if is_class else "value"
    return {name: what for name, what in found.items() if not name.startswith("_") or name == "__init__"}


def agree(native, stub):
    if not isinstance(native, tuple) or not isinstance(stub, tuple):
        return native == stub
    # The module takes old spellings by **, for which the new one may be missing; the stub declares new ones only.
    if "**" in native[1] and "**" not in stub[1]:
        return [name for name in native[1] if name != "**"] == list(stub[1])
    return list(native[1].items()) == list(stub[1].items())


def differences(native, stub, where=""):
    for name in sorted(native.keys() | stub.keys()):
        path = where + name
        if name not in stub:
            yield f"{path}: not in the stub"
        elif name not in native:
            yield f"{path}: not in the module"
        elif isinstance(native[name], dict) and isinstance(stub[name], dict):
            yield from differences(native[name], stub[name], path + ".")
        elif not agree(native[name], stub[name]):
            yield f"{path}: {native[name]} in the module, {stub[name]} in the stub"


def main(stub, out):
    generate(out)
    native, written = (declared(ast.parse(Path(file).read_text(encoding="utf-8")).body) for file in (out, stub))
    found = list(differences(native, written))
    for line in found:
        print(line)
    print(f"stub: {len(native)} names, {len(found)} differences between rmm._core ({out}) and {stub}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
