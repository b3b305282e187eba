#!/bin/sh
# Stops the service when the package is removed, but not when it is upgraded: dpkg says "upgrade", rpm 1.
set -e
case "${1:-}" in
    upgrade | 1) ;;
    *) if [ -d /run/systemd/system ]; then systemctl disable --now cellserver.service; fi ;;
esac
