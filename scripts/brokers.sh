#!/bin/sh
# Installs the brokers that tests of sources read (Mosquitto, NATS) where they are missing and it may.
# Never fails: the tests are skipped with the reason where there is none.
export PATH="$PATH:/usr/sbin"
missing=
for server in mosquitto nats-server; do
  command -v "$server" >/dev/null 2>&1 || missing="$missing $server"
done
[ -n "$missing" ] || exit 0
command -v apt-get >/dev/null 2>&1 || { echo "no$missing, and no apt-get to install it" >&2; exit 0; }
sudo=
[ "$(id -u)" = 0 ] || sudo="sudo -n"
echo "installing$missing for the tests of sources" >&2
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
$sudo apt-get install -y -q --no-install-recommends $missing >/dev/null 2>&1 && exit 0
$sudo apt-get update -q >/dev/null 2>&1
# shellcheck disable=SC2086
$sudo apt-get install -y -q --no-install-recommends $missing >/dev/null 2>&1 ||
  echo "$missing could not be installed" >&2
exit 0
