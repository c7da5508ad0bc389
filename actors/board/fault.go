package board

import "github.com/octet-run/octet/faults"

// spoil does to an answer what a fault says. gone means that it is not given.
func spoil(f *faults.Fault, epoch uint32, hash uint64) (_ uint32, _ uint64, gone bool) {
	switch f.Do {
	case faults.Drop:
		return epoch, hash, true
	case faults.Stale:
		return epoch - 1, hash, false
	case faults.Flip:
		return epoch, hash ^ 1<<17, false
	}
	return epoch, hash, false
}

// damage does to the bytes of a result what a fault says.
func damage(f *faults.Fault, frame []byte) {
	if f != nil && f.Do == faults.Tear {
		clear(frame[len(frame)/2:])
	}
}
