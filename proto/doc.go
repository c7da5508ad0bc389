// Package proto holds the protobuf definitions of Octet's control plane and its
// public API. The generated code is committed beside them.
package proto

//go:generate go run ./internal/generate
