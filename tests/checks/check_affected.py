#!/usr/bin/env python3
"""Checks .ci/affected.py: which checks it leaves out after a change. Usage: check_affected.py BUILD_FOLDER (a finished build)"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".ci"))
import affected

# A changed file, checks that it affects (...: all), and checks that it does not affect.
CASES = (
    ("chapters/04_rope/rope.cpp",
     ["maintainer.page.04_rope", "maintainer.program.04_rope", "maintainer.exercises.04_rope", "sanitized.04_rope",
      "maintainer.program.05_gqa", "sanitized.13_training", "sanitized.model", "maintainer.program.chat", "fuzzing",
      "maintainer.page.README", "maintainer.page.mistakes"],
     ["maintainer.exercises.01_masking", "maintainer.exercises.03_head_splitting", "sanitized.xtensor"]),
    ("chapters/28_model_parallel/mesh.hpp",
     ["maintainer.page.28_model_parallel", "sanitized.train", "maintainer.program.train"],
     ["maintainer.page.06_swiglu", "maintainer.program.27_vision", "sanitized.21_serving"]),
    ("chapters/05_gqa/solution.cpp", ["maintainer.exercises.05_gqa"],
     ["maintainer.exercises.06_swiglu", "maintainer.page.06_swiglu", "maintainer.avx2"]),
    ("chapters/05_gqa/exercise.cpp", ["maintainer.exercises.05_gqa", "maintainer.page.05_gqa"],
     ["maintainer.exercises.06_swiglu", "maintainer.program.05_gqa", "sanitized.05_gqa"]),
    ("tests/chapters/06_swiglu/swiglu.cpp", ["sanitized.06_swiglu"], ["sanitized.05_gqa", "maintainer.program.06_swiglu"]),
    ("tests/chapters/12_gradients/finite_differences_of_model.cpp", ["maintainer.page.12_gradients"], ["sanitized.12_gradients"]),
    ("chapters/15_fast/kernels/dot_tile.cpp", ["maintainer.dot_tile.x86-64-v3", "maintainer.avx2", "sanitized.15_fast"],
     ["maintainer.packed_products.x86-64-v3", "sanitized.14_fine_tuning"]),
    ("docs/05_gqa.md", ["maintainer.page.05_gqa", "maintainer.pages", "maintainer.program.05_gqa", "maintainer.exercises.05_gqa",
                        "maintainer.program.ask", "sanitized.ask", "maintainer.program.train", "maintainer.page.25_encoders",
                        "browser.programs"],
     ["maintainer.page.06_swiglu", "maintainer.program.06_swiglu", "sanitized.05_gqa"]),
    ("chapters/11_generation/main.cpp", ["maintainer.program.11_generation", "maintainer.program.05_gqa"],
     ["maintainer.program.12_gradients", "sanitized.11_generation"]),
    ("docs/anatomy.md", ["maintainer.exercises.models"], ["maintainer.exercises.05_gqa"]),
    ("findings/new.sh", ["maintainer.shellcheck", "maintainer.tree", "browser.figures"], ["maintainer.page.05_gqa", "fuzzing"]),
    ("common/tensors/tensor.hpp", ["maintainer.program.01_masking", "sanitized.serve"], ["maintainer.simd.x86-64-v3"]),
    ("common/tensors/matrix_view.hpp", ["maintainer.program.15_fast", "sanitized.serve", "maintainer.simd.x86-64-v3"], []),
    ("learn", ..., []), ("common/cmake/settings.cmake", ..., []), ("assets/king_james/model.safetensors", ..., []),
    ("tests/checks/check_docs.py", ..., []), ("chapters/05_gqa/not_known.cpp", ..., []))


def main():
    build, wrong = Path(sys.argv[1]).resolve(), []
    inputs = affected.Inputs(build)
    checks = affected.all_checks(build, inputs)
    for file, affects, leaves in CASES:
        left_out = set(affected.unaffected(checks, {file}, inputs))
        expected = checks if affects is ... else affects
        wrong += [f"{file} does not affect {check}" for check in expected if check in left_out]
        wrong += [f"{file} affects {check}" for check in leaves if check not in left_out]
        wrong += [f"there is no check {check}" for check in [*expected, *leaves] if check not in checks]
    listed = set().union(*affected.ALSO_RUNS.values())
    for file in sorted((ROOT / "tests/checks/programs").glob("*.py")):
        used = set(re.findall(r'(?:program\.parent|build) / "(\w+)"', file.read_text())) & inputs.executables
        wrong += [f"ALSO_RUNS lacks {name}, which {file.name} runs" for name in sorted(used - listed)]
    print("\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
