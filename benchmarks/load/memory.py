"""Does the client's memory stay flat? 256 streams x 2048 tokens x 2 requests against the truth server.

    python benchmarks/load/memory.py [--streams 256] [--tokens 2048] [--document docs/accuracy.md]

Prints the peak resident memory of the client process, beside that of the same process for one short request.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from accuracy import HERE, machine

MARKERS = ("<!-- memory -->", "<!-- end of memory -->")


def peak(binary: Path, streams: int, requests: int, tokens: int, interval_ms: float) -> dict[str, float]:
    """Return what the client says of itself after one point against a fresh truth server."""
    server = subprocess.Popen(
        [str(binary), "0", "100", str(tokens), f"{interval_ms:g}", "1"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        words = [sys.executable, str(HERE / "contender_reckoning.py"), url, str(streams), str(requests), str(tokens)]
        output = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        return json.loads(output.splitlines()[-1])
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    cli = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    cli.add_argument("--streams", type=int, default=256)
    cli.add_argument("--tokens", type=int, default=2048)
    cli.add_argument("--interval-ms", type=float, default=20.0)
    cli.add_argument("--document", type=Path, help="Markdown file that gets the result")
    options = cli.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        binary = Path(scratch) / "truth_server"
        subprocess.run(["cc", "-O2", "-o", str(binary), str(HERE / "truth_server.c"), "-lm"], check=True)
        small = peak(binary, 1, 1, 16, options.interval_ms)
        found = peak(binary, options.streams, 2 * options.streams, options.tokens, options.interval_ms)
    text = (
        f"{machine()}: peak resident memory of the client "
        f"{found['peak_rss_mb']:.0f} MB for {options.streams} streams x {options.tokens} tokens x 2 requests "
        f"({found['chunks']} chunks, {found['ok']} requests ok, table of rows included); "
        f"{small['peak_rss_mb']:.0f} MB for one request of 16 tokens."
    )
    print(text)
    if options.document:
        whole = options.document.read_text()
        before, rest = whole.split(MARKERS[0])
        options.document.write_text(f"{before}{MARKERS[0]}\n{text}\n{MARKERS[1]}{rest.split(MARKERS[1])[1]}")


if __name__ == "__main__":
    main()
