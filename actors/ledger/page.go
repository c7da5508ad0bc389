package ledger

import (
	"fmt"
	"time"

	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/internal/shm"
)

// Segment is the name of the page among the segments that a rank inherits.
const Segment = "faults"

// Most is how many faults can be armed at a time.
const Most = 512

// The page: a header, entries, and a ring of strikes.
const (
	offMagic   = 0
	offRanks   = 4
	offVersion = 8
	offRounds  = 16
	offStrikes = 24 // counter: strikes ever noted on this page
	offEntries = 64

	entryState   = 0  // word
	entryLen     = 4  // word: bytes of text
	entryStrikes = 8  // counter
	entrySince   = 16 // counter: Unix nanoseconds
	entryPeriod  = 24 // counter: the last period in which it struck
	entryText    = 32
	entryBytes   = 256
	textBytes    = entryBytes - entryText

	offRing     = offEntries + Most*entryBytes
	ringSize    = 4096
	strikeDone  = 0 // counter: number of the strike + 1, once the rest is written
	strikeEntry = 8
	strikeRank  = 16
	strikeRound = 24
	strikeOp    = 32
	strikeHit   = 40
	strikeTime  = 48
	strikeBytes = 64

	pageBytes = offRing + ringSize*strikeBytes
	magic     = 0x4c54464f // "OFTL"
)

// The states of an entry.
const (
	empty = iota
	armed
	struck
	cleared
)

// Page is a mapping of the memory of one epoch.
type Page struct {
	segment *shm.Segment
	ranks   int
}

var _ faults.Ledger = (*Page)(nil)

// create makes an empty page. The caller closes the segment.
func create(ranks int, rounds uint64) (*shm.Segment, error) {
	segment, err := shm.Create("octet-faults", pageBytes)
	if err != nil {
		return nil, err
	}
	segment.Word(offMagic).Store(magic)
	segment.Word(offRanks).Store(uint32(ranks))
	segment.Counter(offRounds).Store(rounds)
	return segment, nil
}

// Open finds the page in a segment, which stays the caller's.
func Open(segment *shm.Segment) (*Page, error) {
	if n := len(segment.Bytes()); n != pageBytes {
		return nil, fmt.Errorf("fault ledger: segment has %d bytes, want %d", n, pageBytes)
	}
	if got := segment.Word(offMagic).Load(); got != magic {
		return nil, fmt.Errorf("fault ledger: segment starts with %#x, want %#x", got, magic)
	}
	return &Page{segment: segment, ranks: int(segment.Word(offRanks).Load())}, nil
}

// Version implements faults.Ledger.
func (p *Page) Version() uint64 { return p.segment.Counter(offVersion).Load() }

// Rounds implements faults.Ledger.
func (p *Page) Rounds() uint64 { return p.segment.Counter(offRounds).Load() }

// Armed implements faults.Ledger.
func (p *Page) Armed() []faults.Armed {
	var list []faults.Armed
	for id := range Most {
		if p.state(id).Load() != armed {
			continue
		}
		script, err := faults.Parse(p.text(id), p.ranks)
		if err != nil || len(script.Faults) != 1 {
			continue // being overwritten; the version will change once more
		}
		since := time.Unix(0, int64(p.segment.Counter(entryAt(id)+entrySince).Load()))
		list = append(list, faults.Armed{ID: id, Fault: script.Faults[0], Since: since})
	}
	return list
}

// Strike implements faults.Ledger.
func (p *Page) Strike(id int, e faults.Event) bool {
	if e.Fault.Every == 0 {
		if !p.state(id).CompareAndSwap(armed, struck) {
			return false
		}
	} else if p.state(id).Load() != armed || !p.isNew(id, e.Fault.Period(e.Where.Round)) {
		return false
	}
	p.segment.Counter(entryAt(id) + entryStrikes).Add(1)
	n := p.segment.Counter(offStrikes).Add(1) - 1
	at := offRing + int(n%ringSize)*strikeBytes
	put := func(field int, v uint64) { p.segment.Counter(at + field).Store(v) }
	put(strikeDone, 0)
	put(strikeEntry, uint64(id))
	put(strikeRank, uint64(int64(e.Rank)))
	put(strikeRound, e.Where.Round)
	put(strikeOp, e.Where.Op)
	put(strikeHit, e.Hit)
	put(strikeTime, uint64(time.Now().UnixNano()))
	put(strikeDone, n+1)
	return true
}

// isNew takes a period of a fault that repeats rounds, which only one may.
func (p *Page) isNew(id int, period uint64) bool {
	last := p.segment.Counter(entryAt(id) + entryPeriod)
	for period > 0 {
		was := last.Load()
		if was >= period {
			return false
		}
		if last.CompareAndSwap(was, period) {
			return true
		}
	}
	return true
}

func (p *Page) strikes() uint64 { return p.segment.Counter(offStrikes).Load() }

// strike reads strike n, false while it is being written or after it was overwritten.
func (p *Page) strike(n uint64) (s Strike, id int, ok bool) {
	at := offRing + int(n%ringSize)*strikeBytes
	get := func(field int) uint64 { return p.segment.Counter(at + field).Load() }
	if get(strikeDone) != n+1 {
		return Strike{}, 0, false
	}
	id = int(get(strikeEntry))
	s = Strike{
		Rank: int(int64(get(strikeRank))), Round: get(strikeRound), Op: get(strikeOp), Hit: get(strikeHit),
		Time: time.Unix(0, int64(get(strikeTime))),
	}
	return s, id, id < Most
}

func entryAt(id int) int { return offEntries + id*entryBytes }

func (p *Page) state(id int) *shm.Word { return p.segment.Word(entryAt(id) + entryState) }

func (p *Page) count(id int) uint64 { return p.segment.Counter(entryAt(id) + entryStrikes).Load() }

func (p *Page) text(id int) string {
	n := min(int(p.segment.Word(entryAt(id)+entryLen).Load()), textBytes)
	return string(p.segment.Bytes()[entryAt(id)+entryText:][:n])
}

// write arms a fault in an entry.
func (p *Page) write(id int, text string, since time.Time) {
	at := entryAt(id)
	p.segment.Word(at + entryLen).Store(uint32(copy(p.segment.Bytes()[at+entryText:at+entryBytes], text)))
	p.segment.Counter(at + entryStrikes).Store(0)
	p.segment.Counter(at + entryPeriod).Store(0)
	p.segment.Counter(at + entrySince).Store(uint64(since.UnixNano()))
	p.state(id).Store(armed)
}

func (p *Page) changed() { p.segment.Counter(offVersion).Add(1) }

// inherit takes over the entries of the last epoch's page.
func (p *Page) inherit(last *Page) {
	copy(p.segment.Bytes()[offEntries:offRing], last.segment.Bytes()[offEntries:offRing])
	p.segment.Counter(offVersion).Store(last.Version() + 1)
}
