"""Functions of JAX on arguments that are partly no arrays."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from relpref.posterior.gaussian import as_key, key_words
from relpref.skeleton import evaluated


@dataclass
class Unhashable:
    exponent: int

    def __call__(self, values: Any) -> Any:
        return jnp.asarray(values) ** self.exponent


def _applied(kernel: Any, values: Any, options: dict[str, Any]) -> dict[str, Any]:
    found = kernel(values)
    return {"found": -found if options["negative"] else found}


def test_what_cannot_be_hashed_is_called_as_it_is() -> None:
    kernel = Unhashable(2)
    for _ in range(2):
        found = evaluated(_applied, kernel, np.float64(1 / 3), {"negative": True})["found"]
        kernel.exponent = 3
    assert_allclose(found, -1 / 27, rtol=1e-15)


@pytest.mark.parametrize("seed", [0, 5, 2**31 - 1, 2**31, 2**40 + 3, -1, np.int64(7)])
def test_words_of_a_seed_are_those_of_its_key(seed: Any) -> None:
    assert_array_equal(key_words(seed), key_words(as_key(seed)))
