package faults

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"cellserver/test/peer"
)

// disk simulates a disk that fails. The kernel stops the server at each system call that changes
// files (seccomp's user notification), and the disk decides whether the call is executed or fails
// with an error. This needs neither root nor a file system, and any error can be simulated.
type disk struct {
	listener int
	process  *os.Process
	fault    atomic.Pointer[fault]
	failed   atomic.Int64 // calls that have failed
	calls    atomic.Int64
	killAt   int64  // the call at which the process is killed; 0 for none
	power    *power // records syncs; nil if the power will not fail
	lies     bool   // syncs succeed without doing anything
	ended    chan struct{}
}

// fault returns the error of a system call, or 0.
type fault func(call int, flags uint64) syscall.Errno

// changes are the system calls that the disk decides about. Sockets and the log do not use them.
var changes = []int{unix.SYS_PWRITE64, unix.SYS_FDATASYNC, unix.SYS_FSYNC, unix.SYS_FTRUNCATE, unix.SYS_OPENAT,
	unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINKAT}

// creates reports whether a call creates a file.
func creates(call int, flags uint64) bool { return call == unix.SYS_OPENAT && flags&unix.O_CREAT != 0 }

func syncs(call int) bool { return call == unix.SYS_FDATASYNC || call == unix.SYS_FSYNC }

var (
	noSpace fault = func(call int, flags uint64) syscall.Errno {
		return errorIf(call == unix.SYS_PWRITE64 || creates(call, flags), syscall.ENOSPC)
	}
	noWrites fault = func(call int, _ uint64) syscall.Errno {
		return errorIf(call == unix.SYS_PWRITE64, syscall.EIO)
	}
	noSyncs fault = func(call int, _ uint64) syscall.Errno {
		return errorIf(syncs(call), syscall.EIO)
	}
	readOnly fault = func(call int, flags uint64) syscall.Errno {
		reads := call == unix.SYS_OPENAT && flags&(unix.O_CREAT|unix.O_WRONLY|unix.O_RDWR) == 0
		return errorIf(!reads && !syncs(call), syscall.EROFS)
	}
)

func errorIf(is bool, err syscall.Errno) syscall.Errno {
	if is {
		return err
	}
	return 0
}

// notification is the kernel's struct seccomp_notif, and response is its struct seccomp_notif_resp.
type (
	notification struct {
		id         uint64
		pid, flags uint32
		call       int32
		arch       uint32
		_          uint64
		arguments  [6]uint64
	}
	response struct {
		id, _ uint64
		err   int32
		flags uint32
	}
)

// serve answers the kernel's notifications until the process has ended.
func (d *disk) serve() {
	defer close(d.ended)
	defer unix.Close(d.listener)
	for {
		events := []unix.PollFd{{Fd: int32(d.listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(events, -1); err == unix.EINTR {
			continue
		}
		if events[0].Revents&unix.POLLIN == 0 {
			return
		}
		var n notification
		if d.control(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)) != 0 {
			continue // the call was interrupted
		}
		r := d.answer(&n)
		d.control(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r)) // fails if the call was interrupted
	}
}

// answer decides about a call.
func (d *disk) answer(n *notification) response {
	goOn := response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	if d.calls.Add(1) == d.killAt {
		d.process.Kill() // before the call
		return goOn
	}
	if f := d.fault.Load(); f != nil {
		if err := (*f)(int(n.call), n.arguments[2]); err != 0 {
			d.failed.Add(1)
			return response{id: n.id, err: -int32(err)}
		}
	}
	if descriptor, ok := isSync(n); ok && d.lies {
		return response{id: n.id}
	} else if ok && d.power != nil {
		d.power.sync(int(n.pid), descriptor)
	}
	return goOn
}

func (d *disk) control(request uintptr, argument unsafe.Pointer) syscall.Errno {
	_, _, err := unix.Syscall(unix.SYS_IOCTL, uintptr(d.listener), request, uintptr(argument))
	return err
}

// begin makes the disk fail, and end makes it work again.
func (d *disk) begin(f fault) { d.fault.Store(&f) }
func (d *disk) end()          { d.fault.Store(nil) }

// onDisk starts a server on a disk. ready is false if the disk has killed it before it was ready.
func onDisk(t *testing.T, d *disk, args ...string) (server *peer.Server, ready bool) {
	t.Helper()
	port := strconv.Itoa(peer.FreePort(t))
	plain := peer.Command(append([]string{"--port", port, "--bind", "127.0.0.1"}, args...)...)
	cmd := exec.Command(os.Args[0], append([]string{listened, plain.Path}, plain.Args[1:]...)...)
	ours, theirs := socketPair(t)
	cmd.ExtraFiles = []*os.File{theirs} // its descriptor 3
	server = peer.Launch(t, cmd)
	theirs.Close()
	d.ended = make(chan struct{})
	d.listener = receive(t, ours)
	d.process = cmd.Process
	go d.serve()
	server.Addr = net.JoinHostPort("127.0.0.1", port)
	await(t, func() bool {
		ready = server.Answers()
		select {
		case <-d.ended:
			return true
		default:
			return ready
		}
	})
	return server, ready
}

func socketPair(t *testing.T) (ours int, theirs *os.File) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	return pair[0], os.NewFile(uintptr(pair[1]), "socket")
}

// receive returns the listener that a process sends.
func receive(t *testing.T, from int) (listener int) {
	defer unix.Close(from)
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(from, make([]byte, 1), control, unix.MSG_CMSG_CLOEXEC)
	require.NoError(t, err)
	messages, err := unix.ParseSocketControlMessage(control[:n])
	require.NoError(t, err)
	require.Len(t, messages, 1, "this needs seccomp with user notification: Linux 5.5 or later")
	descriptors, err := unix.ParseUnixRights(&messages[0])
	require.NoError(t, err)
	return descriptors[0]
}
