package actors

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"

	"github.com/octet-run/octet/actors/link"
	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

// joined makes two systems with a link between them.
func joined(t *testing.T, log *zap.Logger) (supervisor, rank *System, far *link.End) {
	t.Helper()
	segment, err := link.Create(link.Config{})
	if err != nil {
		t.Fatal(err)
	}
	end := func(own, other string, first bool) *link.End {
		e, err := link.Open(segment, link.Config{}, 1, own, other, first)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	near, far := end(supervisorAddress, rankAddress(0), true), end(rankAddress(0), supervisorAddress, false)
	supervisor = NewSystem(SystemConfig{Address: supervisorAddress, Log: log})
	rank = NewSystem(SystemConfig{Address: rankAddress(0)})
	supervisor.attach(rankAddress(0), near)
	rank.attach(supervisorAddress, far)
	var deliveries sync.WaitGroup
	deliveries.Go(func() { _ = supervisor.deliver(rankAddress(0), near) })
	deliveries.Go(func() { _ = rank.deliver(supervisorAddress, far) })
	t.Cleanup(func() {
		near.Close()
		far.Close()
		deliveries.Wait()
		_ = near.Release()
		_ = far.Release()
		supervisor.close()
		rank.close()
	})
	return supervisor, rank, far
}

func TestMessagesAndAnswersCrossTheLink(t *testing.T) {
	supervisor, rank, _ := joined(t, nil)
	echo, err := rank.Spawn("health", func(c actor.Context) {
		if m, ok := c.Message().(*octetv1.Probe); ok {
			c.Respond(&octetv1.Health{Nonce: m.GetNonce(), Goroutines: 3})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan *octetv1.Health, 1)
	asker, err := supervisor.Spawn("asker", func(c actor.Context) {
		switch m := c.Message().(type) {
		case *actor.Started:
			c.Request(actor.NewPID(rankAddress(0), "health"), &octetv1.Probe{Nonce: 42})
		case *octetv1.Health:
			answers <- m
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case m := <-answers:
		if m.GetNonce() != 42 || m.GetGoroutines() != 3 {
			t.Errorf("answer is %v", m)
		}
	case <-time.After(limit):
		t.Error("no answer")
	}
	supervisor.stop(asker, limit)
	rank.stop(echo, limit)
}

func TestWhatCannotCrossIsADeadLetterAndSaidSo(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	supervisor, _, far := joined(t, zap.New(core))
	dead := make(chan any, 4)
	subscription := supervisor.actors.EventStream.Subscribe(func(e any) {
		if d, ok := e.(*actor.DeadLetterEvent); ok {
			dead <- d.Message
		}
	})
	defer supervisor.actors.EventStream.Unsubscribe(subscription)

	supervisor.Send(actor.NewPID(rankAddress(0), "rank"), "a string has no number")
	supervisor.Send(actor.NewPID(rankAddress(7), "rank"), &octetv1.Load{}) // no such link
	far.Close()
	for range 2 {
		select {
		case <-dead:
		case <-time.After(limit):
			t.Fatal("no dead letter")
		}
	}
	if logs.FilterMessage("message not sent").Len() != 2 {
		t.Errorf("the log has %v", logs.All())
	}
}

func TestAMessageOfUnknownTypeIsDropped(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	supervisor, _, far := joined(t, zap.New(core))
	got := make(chan *octetv1.Ready, 1)
	pid, err := supervisor.Spawn("proxy", func(c actor.Context) {
		if m, ok := c.Message().(*octetv1.Ready); ok {
			got <- m
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	body, err := proto.Marshal(&octetv1.Ready{Rank: 5})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []link.Frame{{Type: 999, Target: "proxy"}, {Type: typeReady, Target: "proxy", Body: body}} {
		if err := far.Send(f); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case m := <-got:
		if m.GetRank() != 5 {
			t.Errorf("message is %v", m)
		}
	case <-time.After(limit):
		t.Fatal("the message after the unknown one did not arrive")
	}
	if logs.FilterMessage("message of unknown type dropped").Len() != 1 {
		t.Errorf("the log has %v", logs.All())
	}
	supervisor.stop(pid, limit)
}

func TestEveryNumberedMessageHasOneNumber(t *testing.T) {
	for n := uint16(1); ; n++ {
		m := newMessage(n)
		if m == nil {
			if n <= typeHealth {
				t.Fatalf("type %d has no message", n)
			}
			return
		}
		if got := typeOf(m); got != n {
			t.Errorf("%T has number %d, want %d", m, got, n)
		}
	}
}

func TestAnActorThatPanicsStopsAndIsReported(t *testing.T) {
	crashes := make(chan any, 1)
	s := NewSystem(SystemConfig{Address: "here", OnCrash: func(reason any) { crashes <- reason }})
	defer s.close()
	pid, err := s.Spawn("fragile", func(c actor.Context) {
		if c.Message() == "boom" {
			panic(errors.New("boom"))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Send(pid, "boom")
	select {
	case <-crashes:
	case <-time.After(limit):
		t.Fatal("the panic was not reported")
	}
	s.stop(pid, limit)
}
