"""Sleeps for the time that each request asks for, one request after the other."""

import time

import triton_python_backend_utils as triton


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            delay = triton.get_input_tensor_by_name(request, "DELAY_MS").as_numpy()
            time.sleep(delay.item(0) / 1000)
            responses.append(triton.InferenceResponse([triton.Tensor("SLEPT_MS", delay)]))
        return responses
