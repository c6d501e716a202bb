#!/usr/bin/python3
"""Times llama.cpp for ./learn bench, which calls this. Prints a line for each call: seconds, a tab, the threads, a
tab, the name of the benchmark. It calls llama.cpp's library directly, because the JavaScript of node-llama-cpp takes
longer than a step of a small model.
Usage: time_llama_cpp.py FOLDER MODEL.gguf steps|sequence|batch|encoder, where FOLDER has node_modules/@node-llama-cpp/linux-x64.
steps: a prefill of 512 tokens, and a decode step after 0, 256 and 1024 tokens. sequence: 200 tokens, one at a time.
batch: 16 sequences of 32 + 64 tokens, whose decode steps are computed together. encoder: the vector of a text of 512
tokens; its cosine with the vector in MODEL.gguf.vector is checked."""

import ctypes
import os
import sys
import time
from pathlib import Path


class Parameters(ctypes.Structure):
    """llama_model_params or llama_context_params, passed by value. Only the beginning of the latter is accessed;
    the library reads no more bytes than its own struct has."""
    _fields_ = [("n_ctx", ctypes.c_uint32), ("others", ctypes.c_ubyte * 508)]


class Batch(ctypes.Structure):
    """llama_batch."""
    _fields_ = [("n_tokens", ctypes.c_int32)] + [(name, ctypes.c_void_p) for name in (
        "token", "embd", "pos", "n_seq_id", "seq_id", "logits")]


class ThreadPoolParameters(ctypes.Structure):
    """ggml_threadpool_params."""
    _fields_ = [("others", ctypes.c_ubyte * 1024)]


LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


def load_libraries(folder):
    load = lambda pattern: ctypes.CDLL(str(next(folder.glob(pattern))), mode=ctypes.RTLD_GLOBAL)
    base, ggml, llama = load("libggml-base.so*"), load("libggml.*"), load("libllama.v*")
    for library, name, result, arguments in (
            (base, "ggml_threadpool_params_default", ThreadPoolParameters, [ctypes.c_int]),
            (base, "ggml_backend_reg_get_proc_address", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]),
            (ggml, "ggml_backend_reg_by_name", ctypes.c_void_p, [ctypes.c_char_p]),
            (llama, "llama_model_default_params", Parameters, []),
            (llama, "llama_context_default_params", Parameters, []),
            (llama, "llama_model_load_from_file", ctypes.c_void_p, [ctypes.c_char_p, Parameters]),
            (llama, "llama_init_from_model", ctypes.c_void_p, [ctypes.c_void_p, Parameters]),
            (llama, "llama_attach_threadpool", None, [ctypes.c_void_p] * 3),
            (llama, "llama_set_n_threads", None, [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32]),
            (llama, "llama_get_memory", ctypes.c_void_p, [ctypes.c_void_p]),
            (llama, "llama_memory_seq_rm", ctypes.c_bool, [ctypes.c_void_p] + [ctypes.c_int32] * 3),
            (llama, "llama_batch_get_one", Batch, [ctypes.c_void_p, ctypes.c_int32]),
            (llama, "llama_decode", ctypes.c_int32, [ctypes.c_void_p, Batch]),
            (llama, "llama_set_embeddings", None, [ctypes.c_void_p, ctypes.c_bool]),
            (llama, "llama_get_embeddings_seq", ctypes.POINTER(ctypes.c_float), [ctypes.c_void_p, ctypes.c_int32]),
            (llama, "llama_synchronize", None, [ctypes.c_void_p])):
        getattr(library, name).restype, getattr(library, name).argtypes = result, arguments
    llama.quiet = LOG(lambda level, text, data: None)
    llama.llama_log_set(llama.quiet, None)
    ggml.ggml_backend_load_all_from_path(str(folder).encode())
    return base, ggml, llama


class Sequence:
    """A model, a context, and the KV cache of one sequence."""

    def __init__(self, folder, file):
        self.base, self.ggml, self.llama = load_libraries(folder)
        self.model = self.llama.llama_model_load_from_file(file.encode(), self.llama.llama_model_default_params())
        assert self.model, f"llama.cpp cannot load {file}"

    def start(self, length, threads, num_sequences=1):
        """A new context. Its threads wait between the steps; otherwise each step would start new ones."""
        parameters = self.llama.llama_context_default_params()
        parameters.n_ctx = length
        n_seq_max = ctypes.c_uint32.from_buffer(parameters, Parameters.others.offset + 8)  # after n_batch, n_ubatch
        n_seq_max.value = num_sequences
        self.context = self.llama.llama_init_from_model(self.model, parameters)
        assert self.context, "llama.cpp cannot make a context"
        registry = self.ggml.ggml_backend_reg_by_name(b"CPU")
        address = self.base.ggml_backend_reg_get_proc_address(registry, b"ggml_threadpool_new")
        create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(ThreadPoolParameters))(address)
        pool = create(self.base.ggml_threadpool_params_default(threads))
        self.llama.llama_attach_threadpool(self.context, pool, pool)
        self.llama.llama_set_n_threads(self.context, threads, threads)

    def truncate(self, length):
        """Removes the tokens from this position on."""
        assert self.llama.llama_memory_seq_rm(self.llama.llama_get_memory(self.context), -1, length, -1)

    def evaluate(self, ids):
        """The forward pass of some new tokens, with the logits of the last one."""
        tokens = (ctypes.c_int32 * len(ids))(*ids)
        assert self.llama.llama_decode(self.context, self.llama.llama_batch_get_one(tokens, len(ids))) == 0
        self.llama.llama_synchronize(self.context)


    def evaluate_batch(self, rows):
        """The forward pass of tokens of several sequences: (id, position, sequence, whether its logits are kept)."""
        count = len(rows)
        tokens, positions, sequences, kept = zip(*rows)
        ids = [(ctypes.c_int32 * 1)(sequence) for sequence in sequences]
        arrays = ((ctypes.c_int32 * count)(*tokens), (ctypes.c_int32 * count)(*positions), (ctypes.c_int32 * count)(*[1] * count),
                  (ctypes.c_void_p * count)(*[ctypes.addressof(each) for each in ids]), (ctypes.c_int8 * count)(*kept))
        token, pos, n_seq_id, seq_id, logits = (ctypes.addressof(array) for array in arrays)
        assert self.llama.llama_decode(self.context, Batch(count, token, None, pos, n_seq_id, seq_id, logits)) == 0
        self.llama.llama_synchronize(self.context)


def measure(name, threads, prepare, function, seconds=0.6):
    """Calls the function for so many seconds, and at least five times."""
    total, count = 0, 0
    while total < seconds or count < 5:
        prepare()
        begin = time.perf_counter()
        function()
        elapsed = time.perf_counter() - begin
        print(elapsed, threads, name, sep="\t")
        total, count = total + elapsed, count + 1


def time_steps(sequence):
    threads, ids = os.cpu_count(), [i * 7919 % 32000 for i in range(1024)]
    sequence.start(2048, threads)
    measure("prefill 512", threads, lambda: sequence.truncate(0), lambda: sequence.evaluate(ids[:512]))
    for position in (0, 256, 1024):
        sequence.truncate(0)
        if position > 0:
            sequence.evaluate(ids[:position])
        measure(f"decode at {position}", threads, lambda: sequence.truncate(position), lambda: sequence.evaluate([1]))


def time_sequence(sequence):
    def decode():
        for i in range(200):
            sequence.evaluate([i * 7919 % 512])

    for threads in sorted({1, os.cpu_count()}):
        sequence.start(256, threads)
        measure("200 tokens", threads, lambda: sequence.truncate(0), decode)


def time_batch(sequence):
    def serve():
        for i in range(16):
            sequence.evaluate_batch([((i * 32 + t) * 7919 % 32000, t, i, t == 31) for t in range(32)])
        for t in range(32, 96):
            sequence.evaluate_batch([(t * 7919 % 32000, t, i, True) for i in range(16)])

    threads = os.cpu_count()
    sequence.start(16 * 128, threads, num_sequences=16)
    measure("16 requests", threads, lambda: sequence.truncate(0), serve)


def time_encoder(sequence):
    threads = os.cpu_count()
    expected = [float(line) for line in Path(sys.argv[2] + ".vector").read_text().split()]
    sequence.start(512, threads)
    sequence.llama.llama_set_embeddings(sequence.context, True)
    ids = [i * 7919 % 50368 for i in range(512)]
    measure("encoder 512", threads, lambda: None, lambda: sequence.evaluate(ids))
    vector = sequence.llama.llama_get_embeddings_seq(sequence.context, 0)[:len(expected)]
    product = lambda a, b: sum(x * y for x, y in zip(a, b))
    cosine = product(vector, expected) / (product(vector, vector) * product(expected, expected))**0.5
    assert cosine > 0.99, f"the cosine with our vector is {cosine}"


if __name__ == "__main__":
    package = Path(sys.argv[1]) / "node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"
    loaded = Sequence(package, sys.argv[2])
    {"steps": time_steps, "sequence": time_sequence, "batch": time_batch, "encoder": time_encoder}[sys.argv[3]](loaded)
