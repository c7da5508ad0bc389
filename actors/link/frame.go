package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Frame is one message on its way between two actors.
type Frame struct {
	Epoch uint32
	Seq   uint64
	// Type says what the body is; the users of the link number their messages.
	Type uint16
	// Target and Sender name actors on the receiving and the sending side. An
	// empty sender is none.
	Target, Sender string
	Body           []byte
}

// The layout of a frame, little-endian:
//
//	0  length u32, of the whole frame
//	4  crc    u32, CRC-32C of bytes 8 to the end
//	8  epoch  u32
//	12 type   u16
//	14 target u8, length of the name
//	15 sender u8, length of the name
//	16 seq    u64
//	24 target, sender, body
const (
	headerBytes = 24
	// MaxName bounds the name of an actor.
	MaxName = 255
)

var (
	errLength   = errors.New("impossible length")
	errChecksum = errors.New("wrong checksum")
)

// appendFrame appends the encoding of f.
func appendFrame(dst []byte, f *Frame) ([]byte, error) {
	if len(f.Target) == 0 || len(f.Target) > MaxName || len(f.Sender) > MaxName {
		return dst, fmt.Errorf("actor names %q and %q: want 1 to %d bytes for the target, at most %d for the sender",
			f.Target, f.Sender, MaxName, MaxName)
	}
	start := len(dst)
	dst = append(dst, make([]byte, headerBytes)...)
	dst = append(dst, f.Target...)
	dst = append(dst, f.Sender...)
	dst = append(dst, f.Body...)
	b := dst[start:]
	binary.LittleEndian.PutUint32(b[0:], uint32(len(b)))
	binary.LittleEndian.PutUint32(b[8:], f.Epoch)
	binary.LittleEndian.PutUint16(b[12:], f.Type)
	b[14], b[15] = uint8(len(f.Target)), uint8(len(f.Sender))
	binary.LittleEndian.PutUint64(b[16:], f.Seq)
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[8:], crc32.MakeTable(crc32.Castagnoli)))
	return dst, nil
}

// parseFrame reads a frame that fills b exactly. The body is a part of b.
func parseFrame(b []byte) (Frame, error) {
	if len(b) < headerBytes || uint64(binary.LittleEndian.Uint32(b)) != uint64(len(b)) {
		return Frame{}, errLength
	}
	if crc32.Checksum(b[8:], crc32.MakeTable(crc32.Castagnoli)) != binary.LittleEndian.Uint32(b[4:]) {
		return Frame{}, errChecksum
	}
	target, sender := int(b[14]), int(b[15])
	rest := b[headerBytes:]
	if target == 0 || target+sender > len(rest) {
		return Frame{}, errLength
	}
	return Frame{
		Epoch:  binary.LittleEndian.Uint32(b[8:]),
		Seq:    binary.LittleEndian.Uint64(b[16:]),
		Type:   binary.LittleEndian.Uint16(b[12:]),
		Target: string(rest[:target]),
		Sender: string(rest[target : target+sender]),
		Body:   rest[target+sender:],
	}, nil
}
