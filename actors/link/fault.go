package link

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"github.com/octet-run/octet/faults"
)

// Arm sets what strikes at this end; nil: nothing.
func (e *End) Arm(in *faults.Injector) { e.faults.Store(in) }

// strike is what becomes of a frame on its way into the ring: mostly itself.
func (e *End) strike(frame []byte, seq uint64) ([][]byte, error) {
	fault := e.faults.Load().Point(faults.LinkSend, faults.Where{Op: seq})
	if err := faults.Strike(fault); err != nil {
		return nil, err
	}
	frames := [][]byte{frame}
	if e.held != nil {
		frames = append(frames, e.held)
		e.held = nil
	}
	if fault == nil {
		return frames, nil
	}
	switch fault.Do {
	case faults.Drop:
		return nil, nil
	case faults.Duplicate:
		return append(frames, frame), nil
	case faults.Reorder:
		e.held = bytes.Clone(frame)
		return nil, nil
	case faults.Flip:
		frame[len(frame)-1] ^= 1 << 3
	case faults.Tear:
		clear(frame[len(frame)/2:])
	case faults.Stale:
		binary.LittleEndian.PutUint32(frame[8:], e.epoch-1)
		binary.LittleEndian.PutUint32(frame[4:], crc32.Checksum(frame[8:], crc32.MakeTable(crc32.Castagnoli)))
	}
	return frames, nil
}

// pass reports whether a received frame goes on to its reader.
func (e *End) pass(seq uint64) bool {
	fault := e.faults.Load().Point(faults.LinkReceive, faults.Where{Op: seq})
	return faults.Strike(fault) == nil && (fault == nil || fault.Do != faults.Drop)
}
