"""Sleeps once for a whole batch, for the longest time that a request in it asks for."""

import time

import numpy
import triton_python_backend_utils as triton


def tensor(name, array):
    # Triton's stub was built for numpy 1 and misreads the arrays of numpy 2, but not
    # what those hand over as DLPack.
    if numpy.__version__.startswith("1."):
        return triton.Tensor(name, array)
    return triton.Tensor.from_dlpack(name, array)


class TritonPythonModel:
    def execute(self, requests):
        delays = [triton.get_input_tensor_by_name(r, "DELAY_MS").as_numpy() for r in requests]
        time.sleep(max(int(d.max()) for d in delays) / 1000)
        return [triton.InferenceResponse([tensor("SLEPT_MS", d)]) for d in delays]
