package board

// compare is nil when all ranks have the same operation hash, and otherwise
// names a rank that differs from the majority and where its trace departs.
func (b *Board) compare(seq uint64) error {
	first := b.seatOf[0].hash.Load()
	same := true
	for r := range b.seatOf {
		same = same && b.seatOf[r].hash.Load() == first
	}
	if same {
		return nil
	}
	odd, reference := b.oddOneOut()
	e := &DivergedError{Epoch: b.epoch, Round: seq, Rank: odd, Index: -1}
	e.Index, e.Op, e.Want = firstDifference(&b.seatOf[odd], &b.seatOf[reference])
	return e
}

// oddOneOut picks a rank outside the largest set of equal hashes, and one inside.
// Among equally large sets the one that holds the lowest rank is right.
func (b *Board) oddOneOut() (odd, reference int) {
	votes := map[uint64]int{}
	for r := range b.seatOf {
		votes[b.seatOf[r].hash.Load()]++
	}
	for r := range b.seatOf {
		if votes[b.seatOf[r].hash.Load()] > votes[b.seatOf[reference].hash.Load()] {
			reference = r
		}
	}
	for r := range b.seatOf {
		if b.seatOf[r].hash.Load() != b.seatOf[reference].hash.Load() {
			return r, reference
		}
	}
	return reference, reference
}

// firstDifference finds the first operation on which two ranks' hashes differ,
// as far back as both traces reach.
func firstDifference(odd, reference *seat) (index int64, op, want uint64) {
	a, b := odd.ops.Load(), reference.ops.Load()
	from := uint64(0)
	if n := max(a, b); n > traceOps {
		from = n - traceOps
	}
	for i := from; i < max(a, b); i++ {
		here, there := odd.trace[i%traceOps], reference.trace[i%traceOps]
		switch {
		case i >= a: // the odd rank stopped short
			return int64(i), 0, there.op.Load()
		case i >= b:
			return int64(i), here.op.Load(), 0
		case here.hash.Load() == there.hash.Load():
		case here.op.Load() == there.op.Load() && i == from && from > 0:
			return -1, 0, 0 // they parted before the traces begin
		default:
			return int64(i), here.op.Load(), there.op.Load()
		}
	}
	return -1, 0, 0
}
