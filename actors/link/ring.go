package link

import (
	"encoding/binary"
	"time"

	"github.com/octet-run/octet/internal/shm"
)

// ring is one direction. Its parts in the segment, from its offset:
//
//	0    head counter: bytes ever written
//	8    filled word: moves after every write
//	128  tail counter: bytes ever read
//	136  freed word: moves after every read
//	256  the bytes
type ring struct {
	head, tail    *shm.Counter
	filled, freed *shm.Word
	data          []byte // a power of two
}

const ringOverhead = 2 * shm.CacheLine

func ringAt(s *shm.Segment, off, capacity int) ring {
	return ring{
		head: s.Counter(off), filled: s.Word(off + 8),
		tail: s.Counter(off + shm.CacheLine), freed: s.Word(off + shm.CacheLine + 8),
		data: s.Bytes()[off+ringOverhead : off+ringOverhead+capacity],
	}
}

// write appends frame if there is room.
func (r *ring) write(frame []byte) bool {
	head := r.head.Load()
	if used := head - r.tail.Load(); used > uint64(len(r.data)) || uint64(len(frame)) > uint64(len(r.data))-used {
		return false
	}
	at := int(head) & (len(r.data) - 1)
	n := copy(r.data[at:], frame)
	copy(r.data, frame[n:])
	r.head.Store(head + uint64(len(frame)))
	r.filled.Add(1)
	r.filled.WakeAll()
	return true
}

// read copies the next frame into buf, which it grows. It returns nil when there
// is none, and errLength when the ring's state is impossible.
func (r *ring) read(buf []byte) ([]byte, error) {
	tail := r.tail.Load()
	used := r.head.Load() - tail
	if used == 0 {
		return nil, nil
	}
	var prefix [4]byte
	if used < headerBytes || used > uint64(len(r.data)) {
		return nil, errLength
	}
	r.copyOut(prefix[:], tail)
	length := uint64(binary.LittleEndian.Uint32(prefix[:]))
	if length < headerBytes || length > used {
		return nil, errLength
	}
	buf = append(buf[:0], make([]byte, length)...)
	r.copyOut(buf, tail)
	copy(buf, prefix[:]) // the length that was checked
	r.tail.Store(tail + length)
	r.freed.Add(1)
	r.freed.WakeAll()
	return buf, nil
}

func (r *ring) copyOut(dst []byte, from uint64) {
	at := int(from) & (len(r.data) - 1)
	n := copy(dst, r.data[at:])
	copy(dst[n:], r.data)
}

// waitSlice bounds one wait, so that a closed end is noticed even if its wake was lost.
const waitSlice = 100 * time.Millisecond
