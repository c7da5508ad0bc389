package cuda

// scratch hands out device memory that is free again at the next pass. It takes
// another region where those it has are full, so it grows to what the largest pass
// needs and then stays; passes that ask alike get the same addresses.
type scratch struct {
	alloc   func(bytes int) (uintptr, error)
	most    int // bytes in all; 0: as much as the device has
	regions []region
	at      int // region that is being handed out
	size    int // of all regions
}

// region is a block of device memory that is handed out from the front.
type region struct {
	base        uintptr
	size, taken int
}

const (
	alignment   = 256
	regionBytes = 256 << 20
)

func (r *region) take(bytes int) (uintptr, bool) {
	at := (r.taken + alignment - 1) / alignment * alignment
	if at+bytes > r.size {
		return 0, false
	}
	r.taken = at + bytes
	return r.base + uintptr(at), true
}

// reset makes everything free.
func (s *scratch) reset() {
	for i := range s.regions {
		s.regions[i].taken = 0
	}
	s.at = 0
}

// take returns bytes of memory, or false where the bound forbids more. grow says
// whether more may be allocated.
func (s *scratch) take(bytes int, grow bool) (uintptr, bool, error) {
	for ; s.at < len(s.regions); s.at++ {
		if p, ok := s.regions[s.at].take(bytes); ok {
			return p, true, nil
		}
	}
	s.at = max(0, len(s.regions)-1)
	size := max(bytes, regionBytes)
	if s.most > 0 {
		size = min(size, s.most-s.size)
	}
	if size < bytes || !grow {
		return 0, false, nil
	}
	base, err := s.alloc(size)
	if err != nil {
		return 0, false, err
	}
	s.regions = append(s.regions, region{base: base, size: size})
	s.size += size
	s.at = len(s.regions) - 1
	p, ok := s.regions[s.at].take(bytes)
	return p, ok, nil
}

// mark is how much of each region is taken.
func (s *scratch) mark() []int {
	taken := make([]int, len(s.regions))
	for i := range s.regions {
		taken[i] = s.regions[i].taken
	}
	return taken
}

// restore takes as much as mark says.
func (s *scratch) restore(taken []int) {
	s.reset()
	for i, n := range taken {
		s.regions[i].taken = n
		if n > 0 {
			s.at = i
		}
	}
}
