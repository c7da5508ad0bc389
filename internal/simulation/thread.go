package simulation

import (
	"iter"
	"time"
)

// thread is the engine thread of a simulated rank: a coroutine that runs real,
// blocking code. Wherever that code would wait, or may be struck, it yields to the
// clock, which resumes it later or never. Of all threads one runs at a time.
type thread struct {
	clock *clock
	next  func() (pause, bool)
	end   func()
	yield func(pause) bool

	idle    int // pauses in a row in which it found nothing to do
	parked  bool
	asleep  bool // a resumption is planned
	stopped bool // by SIGSTOP: resumptions are put off
	missed  bool // one was
	over    bool
	err     error
}

// pause is why a thread yields.
type pause struct {
	kind  pauseKind
	sleep time.Duration
}

type pauseKind uint8

const (
	working pauseKind = iota // resume after sleep
	polling                  // resume soon, and ever later while nothing comes
	parking                  // resume when woken
)

// killed unwinds a thread whose process was killed.
type killed struct{}

// newThread makes a thread that begins when it is woken. done is told when body
// has returned by itself.
func newThread(c *clock, body func(*thread) error, done func()) *thread {
	t := &thread{clock: c, parked: true}
	t.next, t.end = iter.Pull(func(yield func(pause) bool) {
		t.yield = yield
		defer func() {
			t.over = true
			if p := recover(); p != nil {
				if _, is := p.(killed); !is {
					panic(p)
				}
				return
			}
			done()
		}()
		t.err = body(t)
	})
	return t
}

// rest yields.
func (t *thread) rest(p pause) {
	if !t.yield(p) {
		panic(killed{})
	}
}

// work takes that long.
func (t *thread) work(d time.Duration) {
	t.idle = 0
	t.rest(pause{kind: working, sleep: d})
}

// poll yields in a loop that looks at memory.
func (t *thread) poll() { t.rest(pause{kind: polling}) }

// park waits for wake.
func (t *thread) park() { t.rest(pause{kind: parking}) }

// hang never comes back.
func (t *thread) hang() {
	for {
		t.park()
	}
}

// wake resumes a parked thread soon.
func (t *thread) wake() {
	if t.parked && !t.asleep && !t.over {
		t.plan(t.clock.between(500, 15*time.Microsecond))
	}
}

func (t *thread) plan(d time.Duration) {
	t.asleep = true
	t.clock.after(d, t.resume)
}

// resume runs the thread up to its next pause.
func (t *thread) resume() {
	t.asleep = false
	switch {
	case t.over:
		return
	case t.stopped:
		t.missed = true
		return
	}
	t.parked = false
	p, more := t.next()
	if !more {
		return
	}
	switch p.kind {
	case working:
		t.plan(p.sleep)
	case polling:
		t.plan(t.clock.between(1, firstPoll<<min(t.idle, pollDoublings)))
		t.idle++
	case parking:
		t.parked = true
	}
}

// A poll is at most firstPoll after the first look, and twice as long after each
// further one.
const (
	firstPoll     = 3 * time.Microsecond
	pollDoublings = 9
)

// kill ends the thread wherever it is. It must not be called from the thread.
func (t *thread) kill() {
	if !t.over {
		t.over = true
		t.end()
	}
}

// stop and cont are SIGSTOP and SIGCONT.
func (t *thread) stop() { t.stopped = true }

func (t *thread) cont() {
	t.stopped = false
	if t.missed {
		t.missed = false
		t.plan(0)
	}
}
