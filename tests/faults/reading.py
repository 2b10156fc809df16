"""python -m tests.faults.reading RUN: read a finished run as its users do; the last word is how
many numbers it holds."""

import sys

import attnprobe
from attnprobe.results.directory import RunDirectory

if __name__ == "__main__":
    RunDirectory(sys.argv[1]).verify()
    attnprobe.load_run(sys.argv[1])
    print(len(attnprobe.read_examples(sys.argv[1])), len(attnprobe.read_results(sys.argv[1])))
