"""The programming languages that are read: their grammar packages, file names and the nodes that
are symbols.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from tree_sitter import Language

EXTRA = "code"
"""The optional dependencies that carry the grammars."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grammar:
    """One language. Node types are those of its tree-sitter grammar."""

    name: str
    package: str
    """Import name of the package that carries the compiled grammar."""
    entry: str = "language"
    suffixes: tuple[str, ...]
    symbols: Mapping[str, str]
    """Node type -> what such a symbol is called."""
    containers: frozenset[str] = frozenset()
    """Symbols whose members are symbols of their own."""
    scopes: frozenset[str] = frozenset()
    """Nodes that are looked into and name nothing."""
    imports: frozenset[str] = frozenset()
    """Nodes that ask for another file."""
    import_scopes: frozenset[str] | None = frozenset()
    """Nodes that imports are looked for in, beside the file itself; None: everywhere."""


class GrammarMissing(Exception):
    """The package of a grammar is not installed; the message is the language."""


def _grammar(
    name: str,
    suffixes: str,
    *,
    symbols: Mapping[str, str],
    imports: str = "",
    import_scopes: str | None = "",
    containers: str = "",
    scopes: str = "",
    package: str | None = None,
    entry: str = "language",
) -> Grammar:
    return Grammar(
        name=name,
        package=package or f"tree_sitter_{name}",
        entry=entry,
        suffixes=tuple(suffixes.split()),
        symbols=MappingProxyType(dict(symbols)),
        containers=frozenset(containers.split()),
        scopes=frozenset(scopes.split()),
        imports=frozenset(imports.split()),
        import_scopes=None if import_scopes is None else frozenset(import_scopes.split()),
    )


_SCRIPT_SYMBOLS = {
    "class_declaration": "class",
    "class": "class",
    "function_declaration": "function",
    "generator_function_declaration": "function",
    "method_definition": "method",
    "variable_declarator": "function",
    "assignment_expression": "function",
    "field_definition": "method",
    "arrow_function": "function",
    "function_expression": "function",
}
_SCRIPT_SCOPES = (
    "export_statement lexical_declaration variable_declaration expression_statement "
    "class_body ambient_declaration"
)
_SCRIPT_IMPORTS = "import_statement export_statement call_expression"
_TYPED_SYMBOLS = {
    **{key: value for key, value in _SCRIPT_SYMBOLS.items() if key != "field_definition"},
    "public_field_definition": "method",
    "abstract_class_declaration": "class",
    "interface_declaration": "interface",
    "enum_declaration": "enum",
    "type_alias_declaration": "type",
    "internal_module": "namespace",
    "module": "namespace",
    "function_signature": "function",
    "abstract_method_signature": "method",
}
_C_SYMBOLS = {
    "function_definition": "function",
    "struct_specifier": "struct",
    "union_specifier": "union",
    "enum_specifier": "enum",
    "type_definition": "type",
    "preproc_function_def": "macro",
}
_C_SCOPES = (
    "preproc_ifdef preproc_if preproc_else preproc_elif linkage_specification declaration_list"
)
_JAVA_TYPES = "class_declaration interface_declaration enum_declaration record_declaration"

GRAMMARS = (
    _grammar(
        "python",
        ".py .pyi",
        symbols={"class_definition": "class", "function_definition": "function"},
        containers="class_definition",
        scopes="decorated_definition block if_statement elif_clause else_clause try_statement "
        "except_clause with_statement",
        imports="import_statement import_from_statement future_import_statement",
        import_scopes="block class_definition function_definition decorated_definition "
        "if_statement elif_clause else_clause try_statement except_clause finally_clause "
        "with_statement for_statement while_statement match_statement case_clause",
    ),
    _grammar(
        "javascript",
        ".js .mjs .cjs .jsx",
        symbols=_SCRIPT_SYMBOLS,
        containers="class_declaration class",
        scopes=_SCRIPT_SCOPES,
        imports=_SCRIPT_IMPORTS,
        import_scopes=None,
    ),
    _grammar(
        "typescript",
        ".ts .mts .cts",
        symbols=_TYPED_SYMBOLS,
        containers="class_declaration class abstract_class_declaration internal_module module",
        scopes=f"{_SCRIPT_SCOPES} statement_block",
        imports=_SCRIPT_IMPORTS,
        import_scopes=None,
        entry="language_typescript",
    ),
    _grammar(
        "tsx",
        ".tsx",
        package="tree_sitter_typescript",
        symbols=_TYPED_SYMBOLS,
        containers="class_declaration class abstract_class_declaration internal_module module",
        scopes=f"{_SCRIPT_SCOPES} statement_block",
        imports=_SCRIPT_IMPORTS,
        import_scopes=None,
        entry="language_tsx",
    ),
    _grammar(
        "go",
        ".go",
        symbols={
            "function_declaration": "function",
            "method_declaration": "method",
            "type_spec": "type",
            "type_alias": "type",
        },
        scopes="type_declaration",
        imports="import_spec",
        import_scopes="import_declaration import_spec_list",
    ),
    _grammar(
        "rust",
        ".rs",
        symbols={
            "function_item": "function",
            "function_signature_item": "function",
            "struct_item": "struct",
            "union_item": "union",
            "enum_item": "enum",
            "trait_item": "trait",
            "impl_item": "impl",
            "mod_item": "module",
            "type_item": "type",
            "macro_definition": "macro",
        },
        containers="trait_item impl_item mod_item",
        scopes="declaration_list",
        imports="use_declaration mod_item",
        import_scopes="mod_item declaration_list",
    ),
    _grammar(
        "java",
        ".java",
        symbols={
            "class_declaration": "class",
            "interface_declaration": "interface",
            "enum_declaration": "enum",
            "record_declaration": "record",
            "annotation_type_declaration": "annotation",
            "method_declaration": "method",
            "constructor_declaration": "constructor",
        },
        containers=_JAVA_TYPES,
        scopes="class_body interface_body enum_body enum_body_declarations",
        imports="import_declaration",
    ),
    _grammar(
        "c",
        ".c .h",
        symbols=_C_SYMBOLS,
        scopes=_C_SCOPES,
        imports="preproc_include",
        import_scopes=_C_SCOPES,
    ),
    _grammar(
        "cpp",
        ".cc .cpp .cxx .hh .hpp .hxx .cu .cuh",
        symbols={**_C_SYMBOLS, "class_specifier": "class", "namespace_definition": "namespace"},
        containers="class_specifier struct_specifier namespace_definition",
        scopes=f"{_C_SCOPES} template_declaration field_declaration_list",
        imports="preproc_include",
        import_scopes=_C_SCOPES,
    ),
    _grammar(
        "csharp",
        ".cs",
        package="tree_sitter_c_sharp",
        symbols={
            "namespace_declaration": "namespace",
            "class_declaration": "class",
            "struct_declaration": "struct",
            "interface_declaration": "interface",
            "record_declaration": "record",
            "enum_declaration": "enum",
            "method_declaration": "method",
            "constructor_declaration": "constructor",
        },
        containers="namespace_declaration class_declaration struct_declaration "
        "interface_declaration record_declaration",
        scopes="declaration_list file_scoped_namespace_declaration",
        imports="using_directive",
        import_scopes="namespace_declaration declaration_list",
    ),
    _grammar(
        "ruby",
        ".rb .rake",
        symbols={
            "class": "class",
            "module": "module",
            "method": "method",
            "singleton_method": "method",
        },
        containers="class module",
        scopes="body_statement",
        imports="call",
        import_scopes="class module body_statement begin if unless then",
    ),
    _grammar(
        "php",
        ".php",
        entry="language_php",
        symbols={
            "class_declaration": "class",
            "interface_declaration": "interface",
            "trait_declaration": "trait",
            "enum_declaration": "enum",
            "method_declaration": "method",
            "function_definition": "function",
        },
        containers="class_declaration interface_declaration trait_declaration enum_declaration",
        scopes="declaration_list enum_declaration_list namespace_definition compound_statement",
        imports="namespace_use_clause require_once_expression include_once_expression "
        "require_expression include_expression",
        import_scopes="namespace_use_declaration namespace_definition compound_statement "
        "expression_statement",
    ),
    _grammar(
        "bash",
        ".sh .bash",
        symbols={"function_definition": "function"},
        imports="command",
        import_scopes="if_statement then_clause else_clause list subshell compound_statement "
        "function_definition",
    ),
    _grammar(
        "sql",
        ".sql",
        symbols={
            "create_table": "table",
            "create_view": "view",
            "create_materialized_view": "view",
            "create_function": "function",
            "create_procedure": "procedure",
            "create_trigger": "trigger",
            "create_index": "index",
            "create_type": "type",
        },
        scopes="statement",
    ),
)

_BY_SUFFIX = {suffix: grammar for grammar in GRAMMARS for suffix in grammar.suffixes}
CODE_SUFFIXES = tuple(_BY_SUFFIX)


def grammar_of(suffix: str) -> Grammar | None:
    """Return the grammar of files with a lower-case suffix; None for other files."""
    return _BY_SUFFIX.get(suffix)


@lru_cache(maxsize=len(GRAMMARS))
def language_of(grammar: Grammar) -> Language:
    """Load a compiled grammar from its installed package.

    Raises:
        GrammarMissing: the package, or tree-sitter itself, is not installed.
    """
    try:
        from tree_sitter import Language

        return Language(cast("object", getattr(import_module(grammar.package), grammar.entry)()))
    except ImportError:
        raise GrammarMissing(grammar.name) from None
