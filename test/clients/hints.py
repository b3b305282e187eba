"""Prints the hint that redis-cli shows when a user types a command at a terminal: hints.py redis-cli -p port"""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios

pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 200, 0, 0))
    os.environ.update(TERM="xterm", REDISCLI_HISTFILE="/dev/null")
    os.execvp(sys.argv[1], sys.argv[1:])


def until(word):
    shown = b""
    while word not in shown and select.select([terminal], [], [], 10)[0]:
        shown += os.read(terminal, 65536)
    return shown.decode()


until(b"> ")  # redis-cli discards what is typed before the prompt
os.write(terminal, b"cl.throttle ")
print(until(b"quantity"))
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
