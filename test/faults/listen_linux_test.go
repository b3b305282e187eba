package faults

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// listened as the first argument makes this test program execute another program, its second
// argument, whose system calls a disk decides about.
const listened = "listened"

// becomeListened executes the other program if the first argument is listened.
func becomeListened() {
	if len(os.Args) > 2 && os.Args[1] == listened {
		fmt.Fprintln(os.Stderr, execListened(os.Args[2:]))
		os.Exit(1)
	}
}

func execListened(args []string) error {
	runtime.LockOSThread() // the filter belongs to a thread, and stays when the thread executes a program
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := notifying(changes)
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	listener, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	if failed != 0 {
		return os.NewSyscallError("seccomp", failed)
	}
	const socket = 3
	if err := unix.Sendmsg(socket, []byte{0}, unix.UnixRights(int(listener)), nil, 0); err != nil {
		return os.NewSyscallError("sendmsg", err)
	}
	unix.CloseOnExec(socket)
	return syscall.Exec(args[0], args, os.Environ())
}

// notifying returns a filter that lets a listener decide about some system calls. The number of the
// call is the first field of the structure that a filter reads.
func notifying(calls []int) []unix.SockFilter {
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}}
	for i, call := range calls {
		filter = append(filter, unix.SockFilter{
			Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(call), Jt: uint8(len(calls) - i),
		})
	}
	return append(filter, unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_USER_NOTIF})
}
