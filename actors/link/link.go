package link

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/internal/shm"
)

var (
	// ErrFull says that the other side did not read for Config.SendTimeout.
	ErrFull = errors.New("ring full")
	// ErrClosed says that this end of the link was closed.
	ErrClosed = errors.New("link closed")
	// ErrCorrupt says that what lies in the ring is no sequence of frames.
	ErrCorrupt = errors.New("corrupt frame")
)

// Error is any failure of a link. It is ErrFull, ErrClosed or ErrCorrupt, or
// says that a message does not fit.
type Error struct {
	Link string // "supervisor -> rank 3"
	Seq  uint64 // of the frame at fault
	Err  error
}

// Error names the link and the frame.
func (e *Error) Error() string { return fmt.Sprintf("link %s: frame %d: %v", e.Link, e.Seq, e.Err) }

// Unwrap is the kind of failure.
func (e *Error) Unwrap() error { return e.Err }

// Config sizes a link. Zero values take the defaults.
type Config struct {
	// Capacity is the bytes of one ring, a power of two: 256 KiB. A frame may
	// take half of it.
	Capacity int
	// SendTimeout bounds the wait for room: 200 ms.
	SendTimeout time.Duration
}

func (c *Config) validate() error {
	if c.Capacity == 0 {
		c.Capacity = 256 << 10
	}
	if c.SendTimeout == 0 {
		c.SendTimeout = 200 * time.Millisecond
	}
	if c.Capacity < 1024 || c.Capacity&(c.Capacity-1) != 0 || c.SendTimeout < 0 {
		return fmt.Errorf("link: capacity of %d bytes, send timeout %v: want a power of two from 1024, and no negative time",
			c.Capacity, c.SendTimeout)
	}
	return nil
}

// Create makes the segment of a link, with both rings empty.
func Create(c Config) (*shm.Segment, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return shm.Create("octet-link", 2*(ringOverhead+c.Capacity))
}

// End is one process's end of a link.
type End struct {
	epoch   uint32
	timeout time.Duration
	segment *shm.Segment

	sendMu   sync.Mutex
	out      ring
	outName  string
	sent     uint64
	frameBuf []byte

	in       ring
	inName   string
	received uint64
	readBuf  []byte

	stale  atomic.Uint64
	closed atomic.Bool
	faults atomic.Pointer[faults.Injector]
	held   []byte // a frame that a fault keeps back; guarded by sendMu
}

// Open makes an end of the link in segment for one epoch. The two ends give the
// same names, own first, and differ in first: who takes the first ring to send.
func Open(segment *shm.Segment, c Config, epoch uint32, own, other string, first bool) (*End, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	capacity := len(segment.Bytes())/2 - ringOverhead
	if capacity < 1024 || capacity&(capacity-1) != 0 {
		return nil, fmt.Errorf("link %s -> %s: a segment of %d bytes holds no rings", own, other, len(segment.Bytes()))
	}
	a, b := ringAt(segment, 0, capacity), ringAt(segment, ringOverhead+capacity, capacity)
	if !first {
		a, b = b, a
	}
	return &End{
		epoch: epoch, timeout: c.SendTimeout, segment: segment,
		out: a, outName: own + " -> " + other,
		in: b, inName: other + " -> " + own,
	}, nil
}

// Join is Open for a segment inherited as an open file, which it takes.
func Join(file *os.File, c Config, epoch uint32, own, other string) (*End, error) {
	segment, err := shm.Open(file)
	if err != nil {
		return nil, err
	}
	end, err := Open(segment, c, epoch, own, other, false)
	if err != nil {
		_ = segment.Close()
	}
	return end, err
}

// Send puts a frame into the ring; epoch and sequence number are the link's own.
func (e *End) Send(f Frame) error {
	e.sendMu.Lock()
	defer e.sendMu.Unlock()
	f.Epoch, f.Seq = e.epoch, e.sent+1
	fail := func(err error) error { return &Error{Link: e.outName, Seq: f.Seq, Err: err} }
	if e.closed.Load() { // and perhaps released: touch nothing
		return fail(ErrClosed)
	}
	frame, err := appendFrame(e.frameBuf[:0], &f)
	if err != nil {
		return fail(err)
	}
	e.frameBuf = frame
	if most := len(e.out.data) / 2; len(frame) > most {
		return fail(fmt.Errorf("%d bytes, at most %d fit", len(frame), most))
	}
	frames, err := e.strike(frame, f.Seq)
	if err != nil {
		return fail(err)
	}
	for deadline := time.Now().Add(e.timeout); len(frames) > 0; {
		freed := e.out.freed.Load()
		if e.closed.Load() {
			return fail(ErrClosed)
		}
		if e.out.write(frames[0]) {
			frames = frames[1:]
			continue
		}
		left := time.Until(deadline)
		if left <= 0 {
			return fail(fmt.Errorf("%w for %v: the other side does not read", ErrFull, e.timeout))
		}
		e.out.freed.Block(freed, min(left, waitSlice))
	}
	e.sent = f.Seq
	return nil
}

// Receive waits for the next frame. The body is valid until the next call.
func (e *End) Receive() (Frame, error) {
	for {
		filled := e.in.filled.Load()
		if e.closed.Load() {
			return Frame{}, &Error{Link: e.inName, Seq: e.received + 1, Err: ErrClosed}
		}
		f, ok, err := e.Poll()
		if ok || err != nil {
			return f, err
		}
		e.in.filled.Block(filled, waitSlice)
	}
}

// Poll takes the next frame of this epoch, if there is one, and does not wait. The
// body is valid until the next call of Poll or Receive.
func (e *End) Poll() (f Frame, ok bool, err error) {
	for {
		b, err := e.in.read(e.readBuf)
		if err == nil && b == nil {
			return Frame{}, false, nil
		}
		if err == nil {
			e.readBuf = b
			f, err = parseFrame(b)
		}
		switch {
		case err != nil:
			return Frame{}, false, e.corrupt(err)
		case int32(f.Epoch-e.epoch) < 0:
			e.stale.Add(1)
			continue
		case f.Epoch != e.epoch:
			return Frame{}, false, e.corrupt(fmt.Errorf("epoch %d in a link of epoch %d", f.Epoch, e.epoch))
		case f.Seq != e.received+1:
			return Frame{}, false, e.corrupt(fmt.Errorf("sequence number %d after %d", f.Seq, e.received))
		}
		e.received = f.Seq
		if !e.pass(f.Seq) {
			continue
		}
		return f, true, nil
	}
}

func (e *End) corrupt(err error) error {
	return &Error{Link: e.inName, Seq: e.received + 1, Err: fmt.Errorf("%w: %w", ErrCorrupt, err)}
}

// Stale is how many frames of old epochs were dropped.
func (e *End) Stale() uint64 { return e.stale.Load() }

// Close ends Send and Receive on this side. The mapping stays until Release.
func (e *End) Close() {
	e.closed.Store(true)
	// Waking the other process as well does no harm: it finds nothing new.
	e.in.filled.Add(1)
	e.in.filled.WakeAll()
	e.out.freed.Add(1)
	e.out.freed.WakeAll()
}

// Release unmaps the memory, after Close and once no call is left inside.
func (e *End) Release() error {
	e.sendMu.Lock()
	defer e.sendMu.Unlock()
	return e.segment.Close()
}
