"""Ask a real SGLang what it makes of server arguments. Run by the engine's interpreter; JSON in, JSON out.

in:  [{"settings": {...}, "env": {...}}, ...]      out: [{"error": text or null, "effective": {...}}, ...]
"""

import json
import logging
import os
import sys

logging.disable(logging.CRITICAL)
ASKED = (
    "ep_size",
    "max_running_requests",
    "disable_overlap_schedule",
    "speculative_num_draft_tokens",
    "chunked_prefill_size",
    "mem_fraction_static",
    "cuda_graph_max_bs",
)


def main():
    cases = json.load(sys.stdin)
    from sglang.srt.server_args import ServerArgs

    answers = []
    for case in cases:
        os.environ.update(case["env"])
        error, found = None, {}
        try:
            arguments = ServerArgs(**case["settings"])
            arguments.check_server_args()
            found = {name: getattr(arguments, name) for name in ASKED}
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
        for name in case["env"]:
            os.environ.pop(name, None)
        answers.append({"error": error, "effective": found})
    print("ANSWER " + json.dumps(answers))


if __name__ == "__main__":
    main()
