package ledger

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/internal/shm"
)

// Book is the supervisor's side: every fault that is armed in a group, over all
// its epochs, and everything that struck.
type Book struct {
	ranks int

	mu      sync.Mutex
	page    *Page
	read    uint64 // strikes of the page that are in strikes
	strikes []Strike
	epochs  int
	rounds  uint64 // rounds of the run that are over
	pick    uint64 // chooses the rank of what may strike any

	outside []faults.Armed // what acts from outside, as of version
	version uint64
	last    uint64 // the round for which DueOutside was asked last
}

// Strike is a fault that struck.
type Strike struct {
	Time  time.Time
	Fault faults.Fault
	// Rank is the process in which it struck, or that was struck from outside.
	Rank           int
	Round, Op, Hit uint64
}

// Entry is a fault as it stands in the book.
type Entry struct {
	ID      string
	Fault   faults.Fault
	Fired   bool
	Strikes uint64
}

// NewBook makes an empty book for a group of so many ranks. seed chooses the ranks
// of faults that may strike any from outside.
func NewBook(ranks int, seed uint64) (*Book, error) {
	b := &Book{ranks: ranks, pick: seed}
	segment, err := create(ranks, 0)
	if err != nil {
		return nil, err
	}
	b.page = &Page{segment: segment, ranks: ranks}
	return b, nil
}

// Close frees the book's memory. No injector of its may be in use.
func (b *Book) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.page.segment.Close()
}

// Segment makes the page of another epoch and returns the memory to hand to its
// ranks, which the caller closes. No rank of the last epoch may be left.
func (b *Book) Segment() (*shm.Segment, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.epochs++; b.epochs > 1 {
		b.rounds++ // the one that the last epoch broke in: it is not run twice
	}
	segment, err := create(b.ranks, b.rounds)
	if err != nil {
		return nil, err
	}
	fd, err := unix.FcntlInt(segment.File().Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		_ = segment.Close()
		return nil, fmt.Errorf("fault ledger: duplicate: %w", err)
	}
	own, err := shm.Open(os.NewFile(uintptr(fd), "octet-faults"))
	if err != nil {
		_ = segment.Close()
		return nil, err
	}
	next := &Page{segment: own, ranks: b.ranks}
	b.collect()
	next.inherit(b.page)
	_ = b.page.segment.Close()
	b.page, b.read = next, 0
	return segment, nil
}

// Injector is for the supervisor's own process.
func (b *Book) Injector() *faults.Injector { return faults.NewSharedInjector(b, faults.Supervisor) }

// Version implements faults.Ledger for the supervisor's process.
func (b *Book) Version() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.page.Version()
}

// Armed implements faults.Ledger.
func (b *Book) Armed() []faults.Armed {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.page.Armed()
}

// Strike implements faults.Ledger.
func (b *Book) Strike(id int, e faults.Event) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.page.Strike(id, e)
}

// Rounds implements faults.Ledger.
func (b *Book) Rounds() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.page.Rounds()
}

// Arm adds faults, all or none, and returns their entries.
func (b *Book) Arm(list []faults.Fault) ([]Entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var free []int
	for id := 0; id < Most && len(free) < len(list); id++ {
		if b.page.state(id).Load() != armed {
			free = append(free, id)
		}
	}
	if len(free) < len(list) {
		return nil, fmt.Errorf("%d faults are too many: %d can be armed at a time", len(list), Most)
	}
	b.collect() // what struck in entries that are written over now
	now := time.Now()
	var entries []Entry
	for i, f := range list {
		b.page.write(free[i], f.String(), now)
		entries = append(entries, Entry{ID: strconv.Itoa(free[i]), Fault: f})
	}
	b.page.changed()
	return entries, nil
}

// List is every fault that was armed and not cleared.
func (b *Book) List() []Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	var entries []Entry
	for id := range Most {
		state := b.page.state(id).Load()
		if state == empty || state == cleared {
			continue
		}
		f, err := b.fault(id)
		if err != nil {
			continue
		}
		n := b.page.count(id)
		entries = append(entries, Entry{ID: strconv.Itoa(id), Fault: f, Fired: n > 0, Strikes: n})
	}
	return entries
}

// Clear disarms the faults of these ids, or all, and says how many there were.
func (b *Book) Clear(ids ...string) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var numbers []int
	for _, id := range ids {
		n, err := strconv.Atoi(id)
		if err != nil || n < 0 || n >= Most {
			return 0, fmt.Errorf("%q is not the id of a fault", id)
		}
		numbers = append(numbers, n)
	}
	if len(ids) == 0 {
		for id := range Most {
			numbers = append(numbers, id)
		}
	}
	b.collect()
	count := 0
	for _, id := range numbers {
		state := b.page.state(id)
		if before := state.Load(); before == armed || before == struck {
			state.Store(cleared)
			count++
		}
	}
	b.page.changed()
	return count, nil
}

func (b *Book) fault(id int) (faults.Fault, error) {
	script, err := faults.Parse(b.page.text(id), b.ranks)
	if err == nil && len(script.Faults) != 1 {
		err = errors.New("no fault")
	}
	if err != nil {
		return faults.Fault{}, err
	}
	return script.Faults[0], nil
}

// Strikes is everything that has struck, in order.
func (b *Book) Strikes() []Strike {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.collect()
	return append([]Strike(nil), b.strikes...)
}

// collect reads what struck since the last call.
func (b *Book) collect() {
	for n := b.page.strikes(); b.read < n; b.read++ {
		s, id, ok := b.page.strike(b.read)
		if !ok {
			continue // the process died while it wrote, or more struck than fit
		}
		if f, err := b.fault(id); err == nil {
			s.Fault = f
			b.strikes = append(b.strikes, s)
		}
	}
}

// RoundDone counts a round that is over.
func (b *Book) RoundDone() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rounds++
}

// Restart has the rounds of the run, and of the triggers, count from here.
func (b *Book) Restart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	// The epoch's own count goes on: what the points add to it may wrap around.
	b.page.segment.Counter(offRounds).Add(-b.rounds)
	b.rounds, b.last = 0, 0
}

// RoundsDone is how many rounds of the run are over.
func (b *Book) RoundsDone() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rounds
}

// DueOutside are the strikes from outside that are due now: the caller carries
// them out. Each is noted. A rank is chosen for those that may strike any.
func (b *Book) DueOutside() []Strike {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := b.rounds + 1
	isNew := next != b.last
	b.last = next
	if version := b.page.Version(); version != b.version {
		b.version = version
		b.outside = slices.DeleteFunc(b.page.Armed(), func(a faults.Armed) bool { return !a.Fault.Do.External() })
	}
	var due []Strike
	for _, a := range b.outside {
		f := a.Fault
		if f.When.Round > 0 && !isNew || !f.Due(faults.Where{Round: next}, 0, time.Since(a.Since)) {
			continue
		}
		rank := f.Rank
		if rank == faults.Any {
			b.pick = b.pick*6364136223846793005 + 1442695040888963407
			rank = int(b.pick >> 33 % uint64(b.ranks))
		}
		if b.page.Strike(a.ID, faults.Event{Fault: f, Rank: rank, Where: faults.Where{Round: next}}) {
			due = append(due, Strike{Time: time.Now(), Fault: f, Rank: rank, Round: next})
		}
	}
	return due
}
