"""The mutants, by the rules that they break: the contract's R1 to R9."""

from typing import Final

from benchmarks.mutants.mutant import Mutant
from benchmarks.mutants.patches_r1_r3 import OF_R1_TO_R3
from benchmarks.mutants.patches_r4_r5 import OF_R4_AND_R5
from benchmarks.mutants.patches_r6_r9 import OF_R6_TO_R9

MUTANTS: Final[tuple[Mutant, ...]] = (*OF_R1_TO_R3, *OF_R4_AND_R5, *OF_R6_TO_R9)
