// Package link carries control-plane frames between two processes: one ring of
// shared memory in each direction, in one segment.
//
// # Ring
//
// A ring is a byte queue with one writing and one reading process. The writer
// owns the head, the reader the tail; both only grow. A frame is copied in whole
// and then made visible by moving the head; the reader copies it out before it
// looks at it, so that what was checked cannot change.
//
// # Frame
//
//	length, crc, epoch, type, seq, target, sender, body
//
// The checksum covers everything behind it. Sequence numbers are consecutive in
// an epoch. A frame of an old epoch is dropped and counted; any other defect (a
// length that cannot be, a wrong checksum, a gap) is an *Error that names the
// link and ends it: behind such a frame nothing in the ring can be trusted.
//
// # Waiting
//
// A full ring makes Send wait, at most Config.SendTimeout, and then fail with
// ErrFull: nothing is lost silently. Receive waits in ordinary system calls; this
// is the control plane, where nothing is urgent to the microsecond.
//
// # Threads
//
// Send may be called from any goroutine; one goroutine calls Receive.
package link
