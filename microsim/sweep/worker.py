"""A process that flies runs: `python -m microsim.sweep.worker`, started by a sweep. Lines of JSON in and out."""

from __future__ import annotations

import json
import os
import sys

from microsim.sweep.flying import Failure, Flyer, Order


def main() -> None:
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what a plug-in prints is no answer
        requests = sys.stdin.buffer
        flyer = Flyer(Order.from_plain(json.loads(requests.readline())))

        def answer(value: object) -> None:
            answers.write(json.dumps(value).encode() + b"\n")
            answers.flush()

        answer("ready")
        for line in requests:
            for run, combination, seed in json.loads(line):
                result = flyer.fly(combination, seed)
                failure = result if isinstance(result, Failure) else Failure("", is_final=False)
                answer([run, [] if isinstance(result, Failure) else result, failure.error, failure.is_final])
        flyer.close()


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, KeyboardInterrupt):  # nobody wants to know any more
        os._exit(1)
