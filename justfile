# The commands of this repository. `just` alone lists them.

python := env("PYTHON", "python")

_default:
    @just --list

# Everything a change must pass, in this order
check: format lint types imports tests docs

# Format the code
format:
    ruff format .

# Lint the code
lint:
    ruff check .

# Check types, strictly
types:
    pyright

# Check that imports point one way
imports:
    lint-imports

# Run the tests
tests *args:
    {{ python }} -m pytest -q {{ args }}

# Run the tests with many examples of each property
full *args:
    HYPOTHESIS_PROFILE=full {{ python }} -m pytest -q {{ args }}

# Run every snippet of the documentation and check that the generated pages are current
docs:
    {{ python }} -m pytest -q tests/docs/test_docs.py

# Write what the documentation takes from the code
docs-write:
    {{ python }} -m docs.generate

# Write the JSON Schemas of the contracts anew
schemas:
    {{ python }} -m ctx_pipeline.contracts.schema

# The whole gate in a clean environment, as CI runs it
gate:
    bash .ci/run
