package round

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// ErrStaleEpoch says that a frame, or a request, belongs to a generation of the
// group that is over, or to a round that has passed.
var ErrStaleEpoch = errors.New("stale epoch")

// FrameError says what is wrong with the bytes of a frame, or with a value that
// does not fit into one.
type FrameError struct {
	Frame  string // "round" or "result"
	Field  string
	Offset int // into the body; -1 where no offset applies
	Reason string
}

// Error names the frame, the field and the place.
func (e *FrameError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("%s frame: %s %s", e.Frame, e.Field, e.Reason)
	}
	return fmt.Sprintf("%s frame: %s at byte %d %s", e.Frame, e.Field, e.Offset, e.Reason)
}

// version of the frames. Both sides of a group run one binary, so there is one.
const version = 1

// The layout of a frame, little-endian:
//
//	0  magic   4 bytes, "OCTD" (round) or "OCTR" (result)
//	4  version u32
//	8  length  u32, of the body
//	12 crc     u32, CRC-32C of bytes 16 to the end of the body
//	16 epoch   u32
//	20 zero    u32
//	24 seq     u64
//	32 body
const headerBytes = 32

const (
	roundMagic  = "OCTD"
	resultMagic = "OCTR"
)

// frameName maps a magic to what FrameError calls the frame.
func frameName(magic string) string {
	if magic == roundMagic {
		return "round"
	}
	return "result"
}

// seal fills in the header of the frame that starts at dst[start].
func seal(dst []byte, start int, magic string, epoch uint32, seq uint64) {
	frame := dst[start:]
	copy(frame, magic)
	binary.LittleEndian.PutUint32(frame[4:], version)
	binary.LittleEndian.PutUint32(frame[8:], uint32(len(frame)-headerBytes))
	binary.LittleEndian.PutUint32(frame[16:], epoch)
	binary.LittleEndian.PutUint32(frame[20:], 0)
	binary.LittleEndian.PutUint64(frame[24:], seq)
	binary.LittleEndian.PutUint32(frame[12:], crc32.Checksum(frame[16:], castagnoli()))
}

// open checks the header and the checksum and returns what the frame carries.
func open(frame []byte, magic string) (epoch uint32, seq uint64, body []byte, err error) {
	bad := func(field, reason string, args ...any) error {
		return &FrameError{Frame: frameName(magic), Field: field, Offset: -1, Reason: fmt.Sprintf(reason, args...)}
	}
	if len(frame) < headerBytes {
		return 0, 0, nil, bad("header", "has %d bytes, want %d", len(frame), headerBytes)
	}
	if got := string(frame[:4]); got != magic {
		return 0, 0, nil, bad("magic", "is %q, want %q", got, magic)
	}
	if got := binary.LittleEndian.Uint32(frame[4:]); got != version {
		return 0, 0, nil, bad("version", "is %d, want %d", got, version)
	}
	if got := binary.LittleEndian.Uint32(frame[20:]); got != 0 {
		return 0, 0, nil, bad("padding", "is %#x, want 0", got)
	}
	if got := uint64(binary.LittleEndian.Uint32(frame[8:])); got != uint64(len(frame)-headerBytes) {
		return 0, 0, nil, bad("length", "is %d, but the body has %d bytes", got, len(frame)-headerBytes)
	}
	want := binary.LittleEndian.Uint32(frame[12:])
	if got := crc32.Checksum(frame[16:], castagnoli()); got != want {
		return 0, 0, nil, bad("checksum", "is %08x, computed %08x", want, got)
	}
	return binary.LittleEndian.Uint32(frame[16:]), binary.LittleEndian.Uint64(frame[24:]), frame[headerBytes:], nil
}

// castagnoli is the table that the processor's CRC instruction implements. The
// standard library caches it.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }
