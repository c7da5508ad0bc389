package checkpoint

import (
	"errors"

	"golang.org/x/sys/unix"
)

// behind bounds what loading leaves in the page cache: once the ranks have copied
// as much as the limit, it waits for all of them and drops those pages. Dropped any
// sooner, a rank that comes later would read them from storage again.
type behind struct {
	limit int64
	meet  func() error // nil: no other rank
	held  []span
	bytes int64
}

// span is a part of a file.
type span struct {
	shard    *shard
	begin, n int64
}

// ahead makes room for the next n bytes and holds them. Every rank must call it with
// the same spans, also for those that it does not read.
func (b *behind) ahead(s *shard, begin, n int64) error {
	if b.bytes+n > b.limit {
		if err := b.drop(); err != nil {
			return err
		}
	}
	b.held = append(b.held, span{s, begin, n})
	b.bytes += n
	return nil
}

// drop drops what is held when all ranks have it.
func (b *behind) drop() error {
	if len(b.held) == 0 {
		return nil
	}
	if b.meet != nil {
		if err := b.meet(); err != nil {
			return err
		}
	}
	var errs []error
	for _, s := range b.held {
		errs = append(errs, s.shard.drop(s.begin, s.n))
	}
	b.held, b.bytes = b.held[:0], 0
	return errors.Join(errs...)
}

// drop takes whole pages out of the page cache. Those at the ends, and those that a
// process has mapped, stay.
func (s *shard) drop(begin, n int64) error {
	if s.file == nil {
		return nil
	}
	return unix.Fadvise(int(s.file.Fd()), begin, n, unix.FADV_DONTNEED)
}
