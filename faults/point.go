package faults

import (
	"slices"
	"sort"
)

// Point names a place where a fault can strike.
type Point string

// The points, at every boundary between the parts of the system.
const (
	RankLoad          Point = "rank.load"          // before a rank loads its weights
	RankStep          Point = "rank.step"          // a rank has taken up a round
	RankDraft         Point = "rank.draft"         // before the drafter runs
	RankVerify        Point = "rank.verify"        // before the verify pass
	RankAccept        Point = "rank.accept"        // before acceptance is proposed
	RankPost          Point = "rank.post"          // before the answer is posted
	CollectiveArrive  Point = "collective.arrive"  // before a rank announces its partial
	CollectiveReduce  Point = "collective.reduce"  // before a rank sums
	CollectiveLeave   Point = "collective.leave"   // after the sum, before its use
	GroupForm         Point = "group.form"         // before the memory of an epoch is made
	BoardPublish      Point = "board.publish"      // before a round is published
	BoardCollect      Point = "board.collect"      // before the answers are read
	LinkSend          Point = "link.send"          // before a control frame is written
	LinkReceive       Point = "link.receive"       // before a control frame is read
	CoordinatorRound  Point = "coordinator.round"  // before a round is composed
	CoordinatorCommit Point = "coordinator.commit" // before accepted tokens are logged
	CoordinatorEmit   Point = "coordinator.emit"   // before tokens go to the client
	DeviceHealth      Point = "device.health"      // before device health is sampled
)

var points = []Point{
	RankLoad, RankStep, RankDraft, RankVerify, RankAccept, RankPost,
	CollectiveArrive, CollectiveReduce, CollectiveLeave,
	GroupForm, BoardPublish, BoardCollect, LinkSend, LinkReceive,
	CoordinatorRound, CoordinatorCommit, CoordinatorEmit, DeviceHealth,
}

// Points lists every point, sorted.
func Points() []Point {
	all := slices.Clone(points)
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	return all
}

// Sides says who passes the point: ranks, the supervisor, or both.
func (p Point) Sides() (ranks, supervisor bool) {
	switch p {
	case GroupForm, BoardPublish, BoardCollect, CoordinatorRound, CoordinatorCommit, CoordinatorEmit:
		return false, true
	case LinkSend, LinkReceive:
		return true, true
	}
	return true, false
}

// Verb is what a fault does.
type Verb string

// The verbs. The first three act on a process from outside, the others at a Point.
const (
	Kill      Verb = "kill"      // SIGKILL
	Stop      Verb = "stop"      // SIGSTOP, and SIGCONT after for=
	Term      Verb = "term"      // SIGTERM
	Abort     Verb = "abort"     // die as native code does, by SIGABRT
	Exit      Verb = "exit"      // exit status 1
	Panic     Verb = "panic"     // panic in the goroutine that is there
	Hang      Verb = "hang"      // never return (for= bounds it)
	Spin      Verb = "spin"      // compute without end (for= bounds it)
	Delay     Verb = "delay"     // sleep for=
	Drop      Verb = "drop"      // leave the step out
	Duplicate Verb = "duplicate" // do the step twice
	Reorder   Verb = "reorder"   // swap with the next of its kind
	Flip      Verb = "flip"      // flip one bit of the data
	Tear      Verb = "tear"      // write only a part
	Stale     Verb = "stale"     // carry the previous epoch
	NaN       Verb = "nan"       // poison the data
	Fail      Verb = "fail"      // return an injected error
)

// external verbs need no point: the supervisor carries them out.
var external = []Verb{Kill, Stop, Term}

// lasting verbs have a length, for=.
var lasting = []Verb{Stop, Hang, Spin, Delay}

// defaults says where a verb strikes when the script names no point. A verb that
// is not here has no other place than the one that the script names.
var defaults = map[Verb]Point{
	Abort: RankStep, Exit: RankStep, Panic: RankStep, Hang: RankStep, Spin: RankStep, Delay: RankStep,
	Drop: CollectiveArrive, Duplicate: CollectiveArrive, Flip: CollectiveArrive,
	Tear: LinkSend, Reorder: LinkSend, Stale: LinkSend, NaN: RankVerify, Fail: RankStep,
}

// allows says which points a verb makes sense at; a verb that is not here goes anywhere.
var allows = map[Verb][]Point{
	Drop:      {CollectiveArrive, LinkSend, LinkReceive, RankPost},
	Duplicate: {CollectiveArrive, LinkSend},
	Reorder:   {LinkSend},
	Flip:      {CollectiveArrive, LinkSend, RankPost},
	Tear:      {LinkSend, RankPost},
	Stale:     {LinkSend, RankPost, CollectiveArrive},
	NaN:       {RankVerify, CollectiveArrive},
}

// Verbs lists every verb, sorted.
func Verbs() []Verb {
	all := slices.Clone(external)
	for v := range defaults {
		all = append(all, v)
	}
	slices.Sort(all)
	return all
}

// PointsOf lists where a verb can strike, its default first; none for a verb that
// acts on whole processes.
func PointsOf(v Verb) []Point {
	first, inside := defaults[v]
	if !inside {
		return nil
	}
	others, limited := allows[v]
	if !limited {
		others = Points()
	}
	all := []Point{first}
	for _, p := range others {
		if p != first {
			all = append(all, p)
		}
	}
	return all
}

// External reports whether the verb acts on a process from outside.
func (v Verb) External() bool { return slices.Contains(external, v) }
