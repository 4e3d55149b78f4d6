"""Sleeps once for a whole batch, for the longest time that a request in it asks for."""

import time

import triton_python_backend_utils as triton


class TritonPythonModel:
    def execute(self, requests):
        delays = [triton.get_input_tensor_by_name(r, "DELAY_MS").as_numpy() for r in requests]
        time.sleep(max(int(d.max()) for d in delays) / 1000)
        return [triton.InferenceResponse([triton.Tensor("SLEPT_MS", d)]) for d in delays]
