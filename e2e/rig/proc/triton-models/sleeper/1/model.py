"""Sleeps for the time that each request asks for, one request after the other."""

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
        responses = []
        for request in requests:
            delay = triton.get_input_tensor_by_name(request, "DELAY_MS").as_numpy()
            time.sleep(delay.item(0) / 1000)
            responses.append(triton.InferenceResponse([tensor("SLEPT_MS", delay)]))
        return responses
