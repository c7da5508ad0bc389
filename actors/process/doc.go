// Package process starts a rank's operating-system process and sees to its end.
//
// # Birth
//
// CPU set and memory policy are set on the thread that forks, before it does:
// the child is bound from its first instruction, with every thread and page; so is
// the precision of its timers, which the runtime's monitor thread has for good. The
// thread is the child's alone and lives as long as the child, because the
// kernel's parent-death signal is tied to the thread that forked.
//
// # Death
//
// A child that outlives its parent would keep a device. Three things end it,
// each sufficient: the parent-death signal; a pipe whose other end only the
// parent holds, which makes the kernel kill the child when it closes (no thread
// of the child has to run for that, so a long kernel does not delay it); and a
// thread that reads the same pipe, for kernels without that facility.
//
// In the other direction the thread waits on the child's pidfd. Exited closes
// the moment the child is reaped, Done when its last words are read as well. WatchThreads
// sees the end of single threads, which on a busy machine comes long before, Crashing
// the beginning of a crash.
//
// # Ownership
//
// A Child owns both its pipe ends and the goroutines that read them; they are
// gone when Done closes. Files given to Start stay the caller's. Whoever calls
// Start calls Kill, if need be, and waits for Done.
package process
