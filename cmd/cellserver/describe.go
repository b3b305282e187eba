package main

import (
	"log/slog"
	"net"
	"os"
	"runtime"

	"cellserver/internal/calendar"
	"cellserver/internal/option"
	"cellserver/internal/store/remote/backend"
)

// describe logs what runs: the version, the process, and the options that an operator asks about first.
func (c *config) describe(log *slog.Logger) {
	zones, _ := calendar.Version()
	values := []any{"version", version, "pid", os.Getpid(), "go", runtime.Version(), "cpus", runtime.GOMAXPROCS(0),
		"transport", c.server.TransportFor(!c.store.isInMemory()), "keys", c.whereKeysAre(), "auth", c.authentication(),
		"tls", onOff(c.tls.isUsed()),
		"time_zones", zones, "maxmemory", c.maxMemory()}
	if c.file != nil {
		values = append(values, "config", c.file.Path)
	}
	log.Info("cellserver starts", values...)
}

// whereKeysAre describes where the keys are, without a password.
func (c *config) whereKeysAre() string {
	if !c.store.isInMemory() {
		if address, err := backend.ParseAddress(c.store.url); err == nil {
			return address.String()
		}
	}
	if dir := c.commands.Persistence.Dir; dir != "" {
		return dir
	}
	return "memory"
}

// maxMemory describes the bound of memory, and where it comes from.
func (c *config) maxMemory() string {
	switch most := c.commands.MaxMemory; {
	case most == 0:
		return "none"
	case most == c.fittedMemory:
		return option.FormatSize(most) + ", two thirds of the container's memory"
	default:
		return option.FormatSize(most)
	}
}

// fitContainer sets maxmemory to two thirds of a container's memory, in bytes; 0 if there is none. The last
// third is for memory that maxmemory does not count: garbage, the buffers of the system, and input between
// two measurements.
func (c *config) fitContainer(memory int64) {
	const unit = 1 << 20
	fitted := int(memory) / 3 * 2
	if fitted > unit {
		fitted -= fitted % unit
	}
	c.fittedMemory, c.commands.MaxMemory = fitted, fitted
}

// authentication describes how clients authenticate.
func (c *config) authentication() string {
	switch {
	case c.access.aclFile != "", len(c.commands.Access.Users) > 0:
		return "users"
	case c.commands.Access.Password != "", c.access.passwordFile != "":
		return "password"
	}
	return "none"
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// warnOpen warns if every client that can reach the server may use it: it listens on other addresses than
// the loopback interface, protected mode is off, and neither a password nor a certificate is needed.
func (c *config) warnOpen(needsPassword bool, listeners []net.Listener, log *slog.Logger) {
	if needsPassword || c.server.ProtectedMode == "yes" {
		return
	}
	for _, l := range listeners {
		address, isTCP := l.Addr().(*net.TCPAddr)
		needsCertificate := listenerKind(l) == "tls" && c.tls.files.AuthClients == "yes"
		if isTCP && !address.IP.IsLoopback() && !needsCertificate {
			log.Warn("any client that can reach this address may use the server: set a password with "+
				"--requirepass-file, or turn on protected mode", "address", address)
		}
	}
}
