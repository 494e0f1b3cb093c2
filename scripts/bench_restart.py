#!/usr/bin/env python3
"""bench_restart.py [--kills N] [--ranks N] [--seed N] TRIDENT CONFIG [SET...]: seconds from a rank's kill -9 to the next step.

Runs `trident supervise -- scripts/mpirun_local RANKS trident train --config CONFIG --set SET...`, kills a random rank at a random
moment once eleven steps of a start are logged, and measures until the next start has logged its first one (log.every must be 1; a
checkpoint must be committed in fewer steps). Prints one line per kill, then the median, the 95th percentile and the largest. The
run must be long enough; it is ended by SIGTERM.
"""
import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

STEP = "] step "  # behind the time of day


def ranks_below(process):
    """pid by rank of every process under `process` that Open MPI started."""
    found, todo = {}, [process]
    while todo:
        pid = todo.pop()
        try:
            for task in Path(f"/proc/{pid}/task").iterdir():
                todo += [int(child) for child in (task / "children").read_text().split()]
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for variable in environment:
            if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                found[int(variable.split(b"=")[1])] = pid
    return found


class Output:
    """The times of logged steps, and how many restarts and checkpoints were seen, from what the job prints."""

    def __init__(self, pipe):
        self.changed = threading.Condition()
        self.steps, self.restarts, self.ended = 0, 0, False
        self.last_lines = []
        threading.Thread(target=self.read, args=(pipe,), daemon=True).start()

    def read(self, pipe):
        for line in pipe:
            with self.changed:
                self.steps += STEP in line
                if "trident supervise:" in line and "; restart " in line:
                    self.restarts, self.steps = self.restarts + 1, 0
                self.last_lines = self.last_lines[-20:] + [line]
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def wait(self, condition, what):
        with self.changed:
            if not self.changed.wait_for(lambda: condition() or self.ended, 120) or self.ended:
                sys.exit(f"bench_restart.py: no {what}; the job said:\n" + "".join(self.last_lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("trident")
    parser.add_argument("config")
    parser.add_argument("set", nargs="*")
    options = parser.parse_args()
    here = Path(__file__).resolve().parent
    command = [options.trident, "supervise", "--", str(here / "mpirun_local"), str(options.ranks), options.trident, "train",
               "--config", options.config]
    for setting in options.set:
        command += ["--set", setting]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    output = Output(job.stdout)
    chance = random.Random(options.seed)
    seconds = []
    try:
        for kill in range(options.kills):
            output.wait(lambda: output.restarts == kill and output.steps >= 11, "ten steps after a start")
            time.sleep(chance.random())
            rank = chance.randrange(options.ranks)
            victim = ranks_below(job.pid)[rank]
            begun = time.monotonic()
            os.kill(victim, signal.SIGKILL)
            output.wait(lambda: output.restarts == kill + 1 and output.steps >= 1, "step after the kill")
            seconds.append(time.monotonic() - begun)
            print(f"kill {kill + 1}: rank {rank}, {seconds[-1]:.2f} s to the next step", flush=True)
    finally:
        job.send_signal(signal.SIGTERM)
        code = job.wait()
    seconds.sort()
    p95 = seconds[max(0, -(-95 * len(seconds) // 100) - 1)]
    print(f"{len(seconds)} kills: median {seconds[len(seconds) // 2]:.2f} s, p95 {p95:.2f} s, largest {seconds[-1]:.2f} s; "
          f"the job ended with {code} when it was told to stop")


if __name__ == "__main__":
    main()
