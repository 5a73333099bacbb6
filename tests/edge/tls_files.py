"""A certificate that is made for a test."""

import subprocess
from pathlib import Path

from millstream.edge.http.serving import Tls


def made_tls(folder: Path) -> Tls:
    certificate, key = str(folder / "cert.pem"), str(folder / "key.pem")
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1"
    subprocess.run(
        ["openssl", *words.split(), "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return Tls(certificate, key)
