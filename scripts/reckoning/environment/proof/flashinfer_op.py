"""Compile FlashInfer's sampling kernels from nothing and use them once: run by the engine's interpreter, prints JSON.

The caller points FLASHINFER_WORKSPACE_BASE at an empty folder: a warm cache would prove nothing.
"""

import json
import time


def main():
    """Draw from a distribution with all weight on one token, on every kind of GPU seen, and print what came."""
    began = time.monotonic()
    import torch
    from flashinfer.jit.sampling import gen_sampling_module

    specification = gen_sampling_module()
    precompiled = bool(getattr(specification, "is_aot", False))
    import flashinfer

    drawn = []
    for device in range(torch.cuda.device_count()):
        probabilities = torch.zeros(4, 128, device=f"cuda:{device}")
        probabilities[:, 42] = 1.0
        with torch.cuda.device(device):
            drawn.append(flashinfer.sampling.sampling_from_probs(probabilities).tolist())
    right = all(token == 42 for row in drawn for token in row)
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps({"right": right, "drawn": drawn, "precompiled": precompiled, "seconds": seconds}))


if __name__ == "__main__":
    main()
