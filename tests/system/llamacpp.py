"""A real server for tests: llama.cpp's own, as the package xllamacpp carries it, on tiny weights.

The weights are made here: random enough to load and to answer, no more. Run as a script, with the
weights' path, a port and names, this is the server.
"""

import random
import struct
import sys
import threading
from pathlib import Path

TRAINED_CONTEXT = 2048
"""What the weights claim to be trained on."""

CONTEXT = 512
"""What the server is set to."""

_WIDTH, _INNER, _HEADS = 32, 64, 4
_STRING, _ARRAY, _UINT32, _INT32, _FLOAT32 = 8, 9, 4, 5, 6
_ALIGNMENT = 32


def write_weights(path: Path) -> None:
    """Write a GGUF file with a model of one layer and a vocabulary of single bytes."""
    tokens = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % byte for byte in range(256))]
    kinds = [2, 3, 3, *([6] * 256)]
    members = [
        _member("general.architecture", _STRING, _text(b"llama")),
        _member("llama.context_length", _UINT32, struct.pack("<I", TRAINED_CONTEXT)),
        _member("llama.embedding_length", _UINT32, struct.pack("<I", _WIDTH)),
        _member("llama.block_count", _UINT32, struct.pack("<I", 1)),
        _member("llama.feed_forward_length", _UINT32, struct.pack("<I", _INNER)),
        _member("llama.attention.head_count", _UINT32, struct.pack("<I", _HEADS)),
        _member("llama.attention.layer_norm_rms_epsilon", _FLOAT32, struct.pack("<f", 1e-5)),
        _member("tokenizer.ggml.model", _STRING, _text(b"llama")),
        _member("tokenizer.ggml.tokens", _ARRAY, _list(_STRING, [_text(each) for each in tokens])),
        _member(
            "tokenizer.ggml.scores", _ARRAY, _list(_FLOAT32, [struct.pack("<f", 0)] * len(tokens))
        ),
        _member(
            "tokenizer.ggml.token_type",
            _ARRAY,
            _list(_INT32, [struct.pack("<i", k) for k in kinds]),
        ),
    ]
    square = ("attn_q", "attn_k", "attn_v", "attn_output")
    tensors: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (_WIDTH, len(tokens)),
        "output.weight": (_WIDTH, len(tokens)),
        "output_norm.weight": (_WIDTH,),
        "blk.0.attn_norm.weight": (_WIDTH,),
        "blk.0.ffn_norm.weight": (_WIDTH,),
        **{f"blk.0.{name}.weight": (_WIDTH, _WIDTH) for name in square},
        "blk.0.ffn_gate.weight": (_WIDTH, _INNER),
        "blk.0.ffn_up.weight": (_WIDTH, _INNER),
        "blk.0.ffn_down.weight": (_INNER, _WIDTH),
    }
    chance = random.Random(0)  # noqa: S311  # weights are no secret
    infos, content = b"", b""
    for name, shape in tensors.items():
        infos += _text(name.encode()) + struct.pack("<I", len(shape))
        infos += struct.pack(f"<{len(shape)}QIQ", *shape, 0, len(content))
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [1.0 if len(shape) == 1 else chance.gauss(0, 0.05) for _ in range(count)]
        content += _padded(struct.pack(f"<{count}f", *values))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(members))
    path.write_bytes(_padded(head + b"".join(members) + infos) + content)


def serve(weights: str, port: int, names: list[str]) -> None:
    """Serve the weights on a port of 127.0.0.1 until killed."""
    import xllamacpp  # noqa: PLC0415  # only the server has it

    choices = xllamacpp.CommonParams()
    choices.model.path = weights
    choices.model_alias = set(names)
    choices.hostnames = ["127.0.0.1"]
    choices.port = port
    choices.n_ctx = CONTEXT
    choices.n_parallel = 1
    choices.cpuparams.n_threads = 1
    choices.warmup = False
    server = xllamacpp.Server(choices)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    threading.Event().wait()


def _text(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


def _member(name: str, kind: int, value: bytes) -> bytes:
    return _text(name.encode()) + struct.pack("<I", kind) + value


def _list(kind: int, items: list[bytes]) -> bytes:
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % _ALIGNMENT)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
