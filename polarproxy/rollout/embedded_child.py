"""The process that holds the embedded engine: `python -P embedded_child.py MODEL ALIAS SLOTS CONTEXT`.

A process of its own, so that a crash of the native code or its exit handlers cannot take the proxy down. It prints the
engine's base URL as its only line of standard output and leaves when its standard input ends, that is, also when the
parent dies without a word.
"""

import os
import sys

import xllamacpp

QUIET = 1
"""llama.cpp's verbosity at which only errors are logged."""


def parameters(model: str, alias: str, slots: int, context: int) -> xllamacpp.CommonParams:
    """llama-server settings for a small model on loopback; defaults of sampling are those of a plain softmax, so that
    the engine's raw log-probabilities are those of the distribution that was sampled from."""
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {alias}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.ui = False
    params.verbosity = QUIET
    params.n_parallel = slots
    params.n_ctx = slots * context
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.cache_ram_mib = 0
    params.warmup = False
    params.fit_params = False  # it may shrink the context without a word
    params.sampling.temp = 1.0
    params.sampling.top_k = 0
    params.sampling.top_p = 1.0
    params.sampling.min_p = 0.0
    return params


def main() -> None:
    model, alias, slots, context = sys.argv[1:]
    try:
        server = xllamacpp.Server(parameters(model, alias, int(slots), int(context)))
    except RuntimeError as error:
        sys.exit(f"llama.cpp: {error}")
    print(server.listening_address, flush=True)
    sys.stdin.buffer.read()
    # No orderly shutdown: its order of destruction has nothing to save, and it may wait for open connections.
    os._exit(0)


if __name__ == "__main__":
    main()
