// Package shm is memory that the processes of one group share: anonymous
// segments (memfd) handed to children by file descriptor, 32-bit words in them
// that processes wait on (futex), deadlines, and the abort word.
//
// A segment has no name in any file system, so nothing is left behind when its
// processes are gone, however they went.
//
// Words are written with atomic operations only. A wait is a raw system call
// with a short timeout in a loop whose every turn has a preemption point: a
// goroutine that sat in one long raw call would hold up the garbage collector
// of its whole process.
package shm
