package transport

import (
	"time"

	"github.com/octet-run/octet/internal/shm"
)

// wait is one wait for a flag to reach an operation.
type wait struct {
	flag     *shm.Counter
	op       uint32
	sleepers *shm.Word // counts who sleeps, so that nobody is woken in vain
	on       int       // the rank that will raise the flag, or everyone
	tag      int
	phase    Phase
}

const (
	everyone  = 0xff   // on: any rank may be the one
	postTag   = 0xffff // tag: a post flag
	finishTag = 0xfffe // tag: the finish flag
)

func (m *SharedMemory) reached(f *shm.Counter, op uint32) bool {
	v := f.Load()
	return uint32(v>>32) == m.epoch && int32(uint32(v)-op) >= 0
}

func (m *SharedMemory) posted(rank int, op uint32) bool { return m.reached(m.posts[rank], op) }

func (m *SharedMemory) allPosted(op uint32) bool {
	for r := range m.posts {
		if !m.posted(r, op) {
			return false
		}
	}
	return true
}

// await polls for as long as it pays, then goes the slow way.
func (m *SharedMemory) await(w *wait, help func() bool) error {
	for range m.polling.spins() {
		if m.reached(w.flag, w.op) {
			return nil
		}
		if m.polling.Idle != nil {
			break
		}
		if help == nil || !help() {
			shm.Pause()
		}
	}
	return m.awaitSlowly(w, help)
}

// awaitSlowly gives the CPU away between polls and watches the abort word, the
// descriptors and the clock.
func (m *SharedMemory) awaitSlowly(w *wait, help func() bool) error {
	yields := m.polling.yields()
	mine := m.states[m.rank]
	stateOfWait := state{op: w.op, what: waiting, on: uint8(w.on), tag: uint16(w.tag)}.pack()
	mine.Store(stateOfWait)
	var looked time.Time
	var after time.Duration
	for turn := 0; ; turn++ {
		if m.reached(w.flag, w.op) {
			return nil
		}
		if help != nil && help() {
			mine.Store(stateOfWait)
			continue
		}
		if err := m.Err(); err != nil {
			if mismatch := m.Check(w.op); mismatch != nil {
				return mismatch
			}
			return err
		}
		switch {
		case m.polling.Idle != nil:
			m.polling.Idle()
		case turn < yields:
			shm.Yield()
			if turn%pollsPerDeadline != 0 {
				continue
			}
		default:
			m.sleep(w)
		}
		now := m.polling.now()
		if !looked.IsZero() {
			after += min(now.Sub(looked), m.polling.gapLimit())
		}
		looked = now
		if after > m.polling.timeout() && !m.reached(w.flag, w.op) {
			return m.timeout(w, after)
		}
		if err := m.Check(w.op); err != nil {
			return err
		}
		if slow := turn - yields; m.polling.Misses != nil && slow > 0 && slow%pollsPerMiss == 0 {
			m.polling.Misses(m.missing(w)[0])
		}
	}
}

// sleep sleeps for at most a time slice. The flag and the abort word are read after
// the sleeper is counted, and whoever raises one reads the count after that, so one
// of them sees the other.
func (m *SharedMemory) sleep(w *wait) {
	w.sleepers.Add(1)
	old := uint32(w.flag.Load())
	if !m.reached(w.flag, w.op) && !m.abort.Raised(m.epoch) {
		w.flag.Low().Sleep(old)
	}
	w.sleepers.Add(^uint32(0))
}

// timeout makes the error of a missed deadline and ends the epoch for the others.
func (m *SharedMemory) timeout(w *wait, after time.Duration) error {
	missing := m.missing(w)
	phase := w.phase
	if w.on == everyone && m.posted(missing[0], w.op) {
		phase = Reduce
	}
	m.Abort(missing[0], shm.TimedOut)
	return &TimeoutError{Rank: missing[0], Missing: missing, Op: w.op, Phase: phase, After: after.Round(time.Millisecond)}
}

// A rank that saw a mismatch waits for the rest, whose vote tells who is odd: it
// looks voteLooks times, voteEvery apart.
const (
	voteLooks = 100
	voteEvery = 500 * time.Microsecond
)

// mismatch names the first rank whose descriptor is not the one of most ranks.
func (m *SharedMemory) mismatch(op uint32) error {
	for look := 0; look < voteLooks && !m.allPosted(op) && m.Err() == nil; look++ {
		if m.polling.Idle != nil {
			m.polling.Idle()
		} else {
			time.Sleep(voteEvery)
		}
	}
	var seen []Descriptor
	var ranks []int
	for r := range m.posts {
		if m.posted(r, op) {
			seen, ranks = append(seen, *m.descriptor(r, op)), append(ranks, r)
		}
	}
	common, votes := 0, 0
	for i := range seen {
		n := 0
		for j := range seen {
			if seen[j] == seen[i] {
				n++
			}
		}
		if n > votes {
			common, votes = i, n
		}
	}
	for i, d := range seen {
		if d != seen[common] {
			m.Abort(ranks[i], shm.OutOfStep)
			return &MismatchError{Rank: ranks[i], Op: op, Want: seen[common], Got: d}
		}
	}
	return m.Err()
}
