#!/bin/sh
# Installs Chromium and its driver for the dashboard's tests where they are missing and it may.
# Never fails: the tests say what is missing, and CI insists on them.
command -v chromedriver >/dev/null 2>&1 && command -v chromium >/dev/null 2>&1 && exit 0
command -v apt-get >/dev/null 2>&1 || { echo "no Chromium, and no apt-get to install it" >&2; exit 0; }
sudo=
[ "$(id -u)" = 0 ] || sudo="sudo -n"
packages="chromium chromium-driver fonts-dejavu-core"
echo "installing Chromium for the dashboard's tests" >&2
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get install -y -q --no-install-recommends $packages >/dev/null 2>&1 && exit 0
$sudo apt-get update -q >/dev/null 2>&1
$sudo apt-get install -y -q --no-install-recommends $packages >/dev/null 2>&1 ||
  echo "Chromium could not be installed" >&2
exit 0
