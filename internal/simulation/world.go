package simulation

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/faults"
)

// world is one run: one seed, one script.
type world struct {
	plan   plan
	clock  *clock
	report *Report

	// Faults that strike inside, by rank and for the supervisor's board; those that
	// the world carries out; and what has struck.
	wire, inner []*faults.Injector
	boardFaults *faults.Injector
	external    []*external
	struck      []faults.Fault

	disk    *disk
	server  *incarnation
	users   []*client
	clients int // that have not ended
	servers int // coordinators not yet closed

	rounds    uint64        // asked for, in the whole run
	processes int           // alive
	memory    int           // mappings
	waiting   bool          // the coordinator waits for a round
	hold      time.Duration // before the round that it has asked for begins
	blamed    int           // faults that had struck when an epoch last ended
	fired     []int         // events of each wire injector before the round in progress

	mu   sync.Mutex
	asks []func() // what the outside wants done
	leap atomic.Int64
}

// incarnation is one serving process: coordinator and supervisor.
type incarnation struct {
	w           *world
	coordinator *coordinator.Coordinator
	group       *group
	log         *mount
	call        *call
	restarts    []time.Duration // when the budget was spent
	served      bool
	runs        map[uint64]run // of each request

	dead   atomic.Bool // it has crashed; from outside, too
	buried bool
}

// crash ends the process. What it does from here on nobody sees.
func (n *incarnation) crash() {
	n.dead.Store(true)
	n.w.clock.poke()
}

// stream makes independent random numbers of a seed, so that taking a fault away
// leaves everything else as it was for as long as possible.
func stream(seed, use uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, use)) }

// Run simulates one seed under a script, to its end, and checks the invariants.
// It must be called in a testing/synctest bubble of its own.
// verbose, if set, hears what happens.
func Run(seed uint64, script []faults.Fault, verbose func(line string)) *Report {
	w := &world{report: &Report{Seed: seed, Faults: script, verbose: verbose}, clock: newClock(stream(seed, 2))}
	w.report.trace = fnv.New64a()
	var err error
	if w.plan, err = drawPlan(stream(seed, 1)); err != nil {
		w.breach("plan: %v", err)
		return w.report
	}
	w.disk = &disk{log: coordinator.NewMemoryLog(64)}
	w.arm(script)
	w.fired = make([]int, w.plan.ranks)
	w.openUsers()
	w.boot()
	w.loop(func() bool { return w.clients == 0 }, lifeLimit)
	w.rest()
	w.shutDown()
	w.report.Trace = w.report.trace.Sum64()
	w.report.Struck = w.allStruck()
	return w.report
}

// The limits of a run in virtual time and in events.
const (
	lifeLimit  = 90 * time.Second
	eventLimit = 2_000_000
	restLimit  = 5 * time.Second
	restAtMost = 400 * time.Millisecond
)

// loop runs events until done, or until it has taken too long.
func (w *world) loop(done func() bool, limit time.Duration) {
	end := w.clock.now + limit
	for n := 0; ; n++ {
		w.listen()
		switch {
		case done():
			return
		case w.clock.now > end, n > eventLimit:
			w.breach("not over after %v and %d events: %d requests have not ended", limit, n, w.clients)
			return
		}
		if !w.clock.step(!w.waiting) {
			if !w.clock.follow(w.clock.now + restAtMost) {
				continue
			}
			w.clock.now += restAtMost
		}
	}
}

// listen does what the outside has asked for, and sees what became of the users.
func (w *world) listen() {
	for {
		w.mu.Lock()
		asks := w.asks
		w.asks = nil
		w.mu.Unlock()
		for _, do := range asks {
			do()
		}
		if len(asks) == 0 {
			break
		}
	}
	if n := w.server; n != nil && n.dead.Load() && !n.buried {
		w.bury(n)
	}
	if w.waiting {
		return
	}
	for _, c := range w.users {
		c.look()
	}
}

// ask hands the clock something to do. It is called from outside.
func (w *world) ask(do func()) {
	w.mu.Lock()
	w.asks = append(w.asks, do)
	w.mu.Unlock()
	w.clock.poke()
}

// begin starts a round that a coordinator has asked for.
func (w *world) begin(g *group, c *call) {
	n := w.server
	if n == nil || n.group != g {
		c.reply(nil, errGone)
		return
	}
	w.runsAgain(n, c.round)
	n.call, w.waiting = c, true
	w.rounds++
	for r := range w.wire {
		w.fired[r] = len(w.wire[r].Fired())
	}
	w.hold = 0
	w.roundFaults()
	w.clock.soon(w.hold+time.Microsecond, w.hold+20*time.Microsecond, func() {
		if !c.over {
			g.begin(c)
		}
	})
}

// answered says that the coordinator no longer waits for its round.
func (w *world) answered() { w.waiting = false }

// boot starts a serving process.
func (w *world) boot() {
	n := &incarnation{w: w, runs: map[uint64]run{}}
	n.group = newGroup(w)
	n.log = w.disk.mount(n)
	c, err := coordinator.New(coordinator.Config{
		Model: "toy", Vocab: vocab, EOS: []int32{eos}, Context: contextTokens, Batch: w.plan.batch, Queue: 3, Blocks: w.plan.blocks,
		ChunkRows: w.plan.chunk, VerifyRows: verifyRows, Replays: w.plan.replays, Log: n.log,
		Now: func() time.Time { return time.Now().Add(time.Duration(w.leap.Load())) },
	}, n.group)
	if err != nil {
		w.breach("coordinator: %v", err)
		return
	}
	n.coordinator, w.server = c, n
	w.servers++
	w.clock.settle()
	n.group.start()
}

// bury ends what a crashed process leaves: its ranks die with it, and another one
// starts.
func (w *world) bury(n *incarnation) {
	n.buried = true
	n.group.dead = true
	w.blamed = 0
	w.note("the server has crashed")
	w.closeServer(n)
	if f := n.group.f; f != nil {
		for _, p := range f.ranks {
			w.clock.soon(0, 50*time.Millisecond, p.kill)
		}
		w.clock.after(60*time.Millisecond, func() {
			w.releases(n.group)
			f.release()
		})
	}
	w.clock.soon(5*time.Millisecond, 80*time.Millisecond, w.boot)
}

// closeServer ends a coordinator's loop.
func (w *world) closeServer(n *incarnation) {
	go func() {
		n.coordinator.Close()
		w.ask(func() { w.servers-- })
	}()
	w.clock.settle()
	if c := n.call; c != nil && !c.over {
		c.judged = true
		c.reply(nil, errGone)
	}
}

func (w *world) openUsers() {
	for i := range w.plan.requests {
		q := &w.plan.requests[i]
		want, err := expected(&q.request)
		if err != nil {
			w.breach("expected output: %v", err)
		}
		c := &client{w: w, name: q.request.ID, request: q.request, limit: q.limit, want: want}
		w.users = append(w.users, c)
		w.clients++
		w.clock.after(q.begins, c.reconnect)
	}
	if w.plan.jump != 0 {
		w.clock.after(w.plan.jumpAt, func() { w.leap.Store(int64(w.plan.jump)) })
	}
}

// shutDown ends everything and checks that nothing is left.
func (w *world) shutDown() {
	n := w.server
	w.closeServer(n)
	n.group.stop()
	w.loop(func() bool { return w.servers == 0 && (n.group.Err() != nil || n.group.dead) }, restLimit)
	w.loop(func() bool { return len(w.clock.events) == 0 }, 2*loadLimit)
	if w.processes != 0 || w.memory != 0 {
		w.breach("after the end %d processes and %d mappings are left", w.processes, w.memory)
	}
}

func (w *world) note(format string, args ...any) {
	fmt.Fprintf(w.report.trace, "%d ", w.clock.now)
	fmt.Fprintf(w.report.trace, format, args...)
	if w.report.verbose != nil {
		w.report.verbose(fmt.Sprintf("%12v  ", w.clock.now) + fmt.Sprintf(format, args...))
	}
}

func (w *world) breach(format string, args ...any) {
	w.report.Breaches = append(w.report.Breaches, fmt.Sprintf(format, args...))
	w.note(format, args...)
}
