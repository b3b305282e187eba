//go:build !linux

package faults

func becomeListened() {}
