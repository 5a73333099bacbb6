#!/bin/sh
# Installs PostgreSQL's server for the tests of its sink where it is missing and it may.
# Never fails: the tests are skipped with the reason where there is none.
command -v initdb >/dev/null 2>&1 && exit 0
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && exit 0
command -v apt-get >/dev/null 2>&1 || { echo "no PostgreSQL, and no apt-get to install it" >&2; exit 0; }
sudo=
[ "$(id -u)" = 0 ] || sudo="sudo -n"
echo "installing PostgreSQL for the tests of its sink" >&2
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get install -y -q --no-install-recommends postgresql >/dev/null 2>&1 && exit 0
$sudo apt-get update -q >/dev/null 2>&1
$sudo apt-get install -y -q --no-install-recommends postgresql >/dev/null 2>&1 ||
  echo "PostgreSQL could not be installed" >&2
exit 0
