// Package persist keeps the content of a store in a folder, so that it survives a restart.
package persist
