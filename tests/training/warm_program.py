"""The program without its start-up time: imports everything once, then forks for each command.

Requests and answers are lines of JSON. A request with ``arguments`` starts ``annealtune`` in a
child, after running the Python text ``setup`` there, and answers its process id; a request with
``wait`` answers that child's exit code, negative if a signal ended it.
"""

import gc
import json
import os
import signal
import sys
import traceback

import torch

import annealtune.cli
import annealtune.cli.runs
import annealtune.training.data.loading
import annealtune.training.describe
import annealtune.training.runs


def become(request):
    """Turn this fork into the program; does not return."""
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor, name in ((1, "stdout"), (2, "stderr")):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(request[name], flags, 0o600), descriptor)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        os.chdir(request["directory"])
        # Whoever runs the tests may have been started by nohup or in the background.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        sys.argv = ["annealtune", *request["arguments"]]
        exec(request["setup"], {"__name__": "setup"})
        annealtune.cli.main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:  # noqa: BLE001 - what python prints when a program ends so
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def answer(value):
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


torch.set_num_threads(1)
annealtune.training.data.loading.load("digits")  # imports scikit-learn: a second
gc.freeze()  # a collection in a child would copy all of these
answer("ready")
for line in sys.stdin:
    request = json.loads(line)
    if "wait" in request:
        answer(os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1]))
        continue
    child = os.fork()
    if child == 0:
        become(request)
    answer(child)
os._exit(0)  # nothing to tidy up, and tidying up torch takes seconds
