"""A process that flies runs: `python -m microsim.sweep.worker`, started by a sweep. Lines of JSON in and out."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback

from microsim.sweep.flying import Failure, Flyer, Order


def main() -> None:
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what a plug-in prints is no answer
        requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=_listen, args=(requests,), daemon=True).start()
        flyer = Flyer(Order.from_plain(json.loads(requests.get())))

        def answer(value: object) -> None:
            answers.write(json.dumps(value).encode() + b"\n")
            answers.flush()

        answer("ready")
        while True:
            for run, combination, seed in json.loads(requests.get()):
                result = flyer.fly(combination, seed)
                failure = result if isinstance(result, Failure) else Failure("", is_final=False)
                answer([run, [] if isinstance(result, Failure) else result, failure.error, failure.is_final])


def _listen(requests: queue.SimpleQueue[bytes]) -> None:
    """When nobody can ask any more, there is nobody to fly for: not even the run under way is of use."""
    for line in sys.stdin.buffer:
        requests.put(line)
    os._exit(0)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # nobody wants to know any more
        pass
    except BaseException:  # the last words, which the sweep shows
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(1)  # not by way of the interpreter's end, where the thread that listens would be in the way
