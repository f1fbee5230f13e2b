"""Each mutant still is one change of the code as it is; `make test-mutants` runs the tests against them."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.mutant import MUTANTS, ROOT, Mutant
from tests.mutants.pairs import PAIR_MUTANTS


@pytest.mark.parametrize("mutant", (*MUTANTS, *PAIR_MUTANTS), ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place_of_a_module_that_can_still_be_read(mutant: Mutant) -> None:
    ast.parse(mutant.mutated())
    for test in mutant.tests:
        assert (ROOT / test.partition("::")[0]).is_file()
