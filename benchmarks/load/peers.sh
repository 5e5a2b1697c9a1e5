#!/bin/sh
# Installs the load generators that accuracy.py compares with, outside the repository:
#   benchmarks/load/peers.sh DIR [PYTHON3.11]
# aiperf and what SGLang's Python client imports go into DIR/venv; SGLang's wheel is unpacked into DIR/sglang without its
# dependencies, since neither of its clients (Python, and Rust as a compiled module for Python 3.11) needs an engine.
set -eu
dir=${1:?usage: peers.sh DIR [PYTHON3.11]}
python=${2:-python3.11}
mkdir -p "$dir"
"$python" -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q aiperf==0.13.0 transformers aiohttp msgspec orjson requests tqdm pillow pybase64 psutil pyzmq
"$dir/venv/bin/pip" download -q --no-deps --only-binary :all: -d "$dir" sglang==0.5.23
"$dir/venv/bin/python" -m zipfile -e "$dir"/sglang-0.5.23-*.whl "$dir/sglang"
echo "peers are in $dir"
