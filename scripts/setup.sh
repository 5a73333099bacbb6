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
install() { "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check "$@"; }

# PySpark comes as source: its build needs the pinned setuptools, and no other, in place first.
tools=$(mktemp)
trap 'rm -f "$tools"' EXIT
awk '/^[a-zA-Z0-9]/ {keep = /^setuptools==/} keep' constraints.txt >"$tools"
install --require-hashes -r "$tools"
install --no-build-isolation --require-hashes -r constraints.txt
install --no-build-isolation --no-deps -e . -e ./lab -e ./bench
