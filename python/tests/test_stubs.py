"""Tests that the stubs list the members of the native part."""

import ast
import inspect
import pathlib

import eutectic
from eutectic import _native

PACKAGE = pathlib.Path(eutectic.__file__).parent


def names(owner):
    return {name for name in vars(owner) if not name.startswith("_")}


def test_stubs_list_what_the_native_part_has():
    tree = ast.parse((PACKAGE / "_native.pyi").read_text())
    told = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert set(told) == names(_native)
    for name, node in told.items():
        if isinstance(node, ast.ClassDef) and name != "Error":
            members = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
            assert {member for member in members if not member.startswith("__")} == names(getattr(_native, name))


def test_the_package_is_typed_and_documented():
    assert (PACKAGE / "py.typed").exists()
    for name in eutectic.__all__:
        assert inspect.getdoc(getattr(eutectic, name)), name
    for member in names(eutectic.Model):
        assert getattr(eutectic.Model, member).__doc__, member
