package actors

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/actors/process"
)

// succession is one end of the socket between the supervisor and a rank's process,
// by which a rank outlives an epoch: it says that it has left, and gets the files of
// the next one. A message is a packet: from the rank the number of the epoch that it
// left, to the rank a handoff with its files.
type succession struct{ conn *net.UnixConn }

const (
	// handoffBytes bounds a handoff's text, handoffFiles its files.
	handoffBytes = 16 << 10
	handoffFiles = 64
	// bequeathWithin bounds the wait for room in the socket: it is empty unless the
	// rank does not read.
	bequeathWithin = 200 * time.Millisecond
)

// newSuccession makes a pair: the supervisor's end, and the file that the rank's
// process inherits.
func newSuccession() (*succession, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("succession: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), successionFile)
	ours, err := joinSuccession(os.NewFile(uintptr(fds[0]), successionFile))
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// joinSuccession is the end behind an open file, which it takes.
func joinSuccession(file *os.File) (*succession, error) {
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("succession: %w", err)
	}
	packets, ok := conn.(*net.UnixConn)
	if !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("succession: the file is a %T", conn)
	}
	return &succession{conn: packets}, nil
}

// close ends all calls, here and on the other side.
func (s *succession) close() { _ = s.conn.Close() }

// leave tells the supervisor that this rank has left an epoch.
func (s *succession) leave(epoch uint32) error {
	_, err := s.conn.Write(binary.LittleEndian.AppendUint32(nil, epoch))
	return err
}

// left waits until the rank has left an epoch.
func (s *succession) left() (epoch uint32, err error) {
	var packet [8]byte
	n, err := s.conn.Read(packet[:])
	if err == nil && n != 4 {
		err = fmt.Errorf("succession: a rank sent %d bytes, want 4", n)
	}
	if err != nil {
		return 0, err // io.EOF when the rank's end is closed
	}
	return binary.LittleEndian.Uint32(packet[:]), nil
}

// bequeath gives an epoch to the rank. The files stay the caller's.
func (s *succession) bequeath(h handoff, files []*os.File) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(bequeathWithin)); err != nil {
		return err
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	_, _, err := s.conn.WriteMsgUnix([]byte(h.String()), unix.UnixRights(fds...), nil)
	return err
}

// inherit waits for the next epoch, until ctx is done. The files are the caller's.
func (s *succession) inherit(ctx context.Context) (handoff, map[string]*os.File, error) {
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	text, rights := make([]byte, handoffBytes), make([]byte, unix.CmsgSpace(4*handoffFiles))
	n, m, flags, _, err := s.conn.ReadMsgUnix(text, rights)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return handoff{}, nil, err
	}
	fds, err := received(rights[:m])
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("succession: a handoff was cut short: this process may be out of file descriptors")
	}
	if err != nil {
		closeAll(fds)
		return handoff{}, nil, err
	}
	h, err := parseHandoff(string(text[:n]))
	if err != nil {
		closeAll(fds)
		return handoff{}, nil, err
	}
	names := segmentOrder(h)
	if len(names) != len(fds) {
		closeAll(fds)
		return handoff{}, nil, fmt.Errorf("succession: %d files came with the handoff %q", len(fds), h)
	}
	files := map[string]*os.File{}
	for i, name := range names {
		files[name] = os.NewFile(uintptr(fds[i]), name)
	}
	return h, files, nil
}

// received are the descriptors among control messages.
func received(control []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, fmt.Errorf("succession: %w", err)
	}
	for i := range messages {
		more, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return fds, fmt.Errorf("succession: %w", err)
		}
		fds = append(fds, more...)
	}
	return fds, nil // close-on-exec: package net asks for it
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// successor checks that a handoff is of a later epoch of the same rank.
func successor(h handoff, in *Inherited) error {
	if h.rank != in.Rank || h.ranks != in.Ranks || int32(h.epoch-in.Epoch) <= 0 {
		return fmt.Errorf("rank %d of %d after epoch %d: was handed %q: %w", in.Rank, in.Ranks, in.Epoch, h, ErrStaleEpoch)
	}
	return nil
}

// successionFD is where a process inherits its end, after the segments' files.
func successionFD(h handoff) int { return process.DeathPipeFD + 1 + len(h.fds) }
