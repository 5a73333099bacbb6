#!/bin/sh
# Makes a virtual environment with the pinned versions and the project itself in it.
# Says in one line what is missing, and installs Java where it may.
set -eu
venv=$1
python=${PYTHON:-python3.11}

command -v "$python" >/dev/null 2>&1 || python=python3
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "Millstream needs Python 3.11 or later: install it (Debian: apt-get install python3.11-venv) or set PYTHON=/path/to/python" >&2
  exit 1
fi
if ! sh "$(dirname "$0")/java.sh"; then exit 1; fi

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
echo "installing the pinned versions into $venv (a few minutes the first time)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check setuptools
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --require-hashes -r constraints.txt
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
