#!/bin/sh
# The service is not started: systemctl enable --now cellserver does that. An upgrade restarts it if it runs.
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl try-restart cellserver.service
fi
