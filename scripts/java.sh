#!/bin/sh
# Succeeds where Java 17 or later is there, or can be installed; else says what to install.
version() { "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -n 1; }
found=$(version)
[ -n "$found" ] && [ "$found" -ge 17 ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "installing Java 17 (openjdk-17-jre-headless)"
  if apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq openjdk-17-jre-headless >/dev/null 2>&1; then exit 0; fi
fi
echo "Millstream needs Java 17 or later for Spark: install it (Debian/Ubuntu: sudo apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17) and run the command again" >&2
exit 1
