// Package octetv1 is the wire form of Octet's two message-based interfaces:
// coordinator.proto, the gRPC service that clients use, and control.proto, the
// bodies of the frames between the supervisor and its ranks.
package octetv1
